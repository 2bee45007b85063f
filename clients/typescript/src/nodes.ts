import { createHash, randomBytes } from "node:crypto";
import { type ChannelCredentials, Client, type ClientReadableStream, type ClientUnaryCall, credentials, type Metadata, status } from "@grpc/grpc-js";
import { ShardwatchError, Silent } from "./errors.js";
import { type Member, MemberState, type Shard, WatchShardMapRequest, WatchShardMapResponse } from "./proto/shardwatch/v1/cluster.js";
import type { Range } from "./types.js";

const maxMessage = 64 << 20; // bytes; a list's chunk is about 512 KiB, a shard map may be larger
const slices = 6; // parts of a silence: time in which the process is stopped counts as one part at most
const probeEvery = 5_000; // milliseconds that the shard map may be quiet before a health check of its node

export const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Waits until a promise has settled, for the given milliseconds in which this process runs. */
export async function settles(p: Promise<unknown>, ms: number): Promise<boolean> {
  const settled = p.then(() => true, () => true);
  for (let i = 0; i < slices; i++) {
    let timer: NodeJS.Timeout | undefined;
    const quiet = new Promise<boolean>((done) => (timer = setTimeout(() => done(false), ms / slices)));
    const first = await Promise.race([settled, quiet]);
    clearTimeout(timer);
    if (first) return true;
  }
  return false;
}

/**
 * Returns the milliseconds to wait before the next attempt: none before the first retry, then a
 * random time below a bound that doubles, plus the delay that the node requested.
 */
export function backoff(failures: number, after = 0): number {
  if (failures <= 1 && !after) return 0;
  const bound = Math.min(50 * 2 ** Math.max(failures - 2, 0), 2000);
  return after + Math.random() * Math.max(bound, after) + 1;
}

/** The known nodes of a cluster: the shard map, penalties and connections. */
export class Nodes {
  cluster = "";
  readonly #endpoints: string[];
  readonly #credentials: ChannelCredentials;
  readonly #seed = randomBytes(8);
  readonly #members = new Map<string, Member>();
  readonly #shards = new Map<bigint, Shard>();
  readonly #clients = new Map<string, Client>();
  readonly #boxed = new Map<string, { failures: number; until: number }>();
  #version = 0n;
  #following: ClientReadableStream<WatchShardMapResponse> | undefined; // open calls keep the process alive
  #heard = false; // from the call that is #following
  #closed = false;
  readonly #silenceMs: number;

  constructor(endpoints: string[], tls: ChannelCredentials | undefined, silenceMs: number) {
    this.#endpoints = endpoints;
    this.#silenceMs = silenceMs;
    this.#credentials = tls ?? credentials.createInsecure();
  }

  client(address: string): Client {
    if (this.#closed) throw new ShardwatchError("unavailable", "the client is closed");
    let client = this.#clients.get(address);
    if (!client) {
      client = new Client(address, this.#credentials, { "grpc.max_receive_message_length": maxMessage });
      this.#clients.set(address, client);
    }
    return client;
  }

  /** Closes the connection to a silent node, unless a new one has replaced it. */
  drop(address: string, client: Client): void {
    if (this.#clients.get(address) !== client) return;
    this.#clients.delete(address);
    client.close();
  }

  close(): void {
    this.#closed = true;
    this.#following?.cancel();
    for (const [address, client] of [...this.#clients]) this.drop(address, client);
  }

  penalise(address: string, atLeast: number): void {
    const failures = (this.#boxed.get(address)?.failures ?? 0) + 1;
    this.#boxed.set(address, { failures, until: performance.now() + Math.max(Math.min(1000 * 2 ** (failures - 1), 10_000), atLeast) });
  }

  praise(address: string): void {
    this.#boxed.delete(address);
  }

  /**
   * Returns the best address: one that is not penalised and was not tried; else the one that was
   * tried longest ago; else the one whose penalty ends first.
   */
  pick(range: Range | undefined, hints: string[], tried: string[]): string {
    const now = performance.now();
    let second: string | undefined, last: string | undefined;
    for (const a of new Set([...hints, ...this.#candidates(range), ...this.#endpoints])) {
      const until = this.#boxed.get(a)?.until ?? 0;
      if (until > now) {
        if (last === undefined || until < this.#boxed.get(last)!.until) last = a;
      } else if (!tried.includes(a)) {
        return a;
      } else if (second === undefined || tried.indexOf(a) < tried.indexOf(second)) {
        second = a;
      }
    }
    return second ?? last!;
  }

  #candidates(range: Range | undefined): string[] {
    const has = new Map<string, number>();
    for (const s of this.#shards.values()) {
      const open = s.rangeEnd.length === 1 && s.rangeEnd[0] === 0;
      const overlaps = !range || ((!range.end.length || Buffer.compare(s.key, range.end) < 0) && (open || Buffer.compare(range.start, s.rangeEnd) < 0));
      if (overlaps) for (const name of s.replicas) has.set(name, (has.get(name) ?? 0) + 1);
    }
    const ranked: { worse: number; have: number; score: string; address: string }[] = [];
    for (const m of this.#members.values()) {
      if (!m.clientAddress || m.state === MemberState.MEMBER_STATE_DEAD || m.state === MemberState.MEMBER_STATE_LEFT) continue;
      const worse = m.draining || m.state === MemberState.MEMBER_STATE_SUSPECT ? 1 : 0;
      const score = createHash("sha256").update(this.#seed).update(m.name).digest("hex");
      ranked.push({ worse, have: has.get(m.name) ?? 0, score, address: m.clientAddress });
    }
    ranked.sort((a, b) => a.worse - b.worse || b.have - a.have || (a.score < b.score ? -1 : 1));
    return ranked.map((r) => r.address);
  }

  #learn(r: WatchShardMapResponse): void {
    if (r.allMembers) this.#members.clear();
    for (const name of r.removedMembers) this.#members.delete(name);
    for (const m of r.members) this.#members.set(m.name, m);
    if (!r.map || (r.map.clusterId === this.cluster && r.map.version < this.#version)) return; // the node was suspended
    if (!r.fromVersion) this.#shards.clear();
    for (const id of r.removedShards) this.#shards.delete(id);
    for (const s of r.map.shards) this.#shards.set(s.id, s);
    this.#version = r.map.version;
    this.cluster = r.map.clusterId;
  }

  /**
   * Follows the shard map and the members at one node after another, until close. learned is called
   * when the map is known, or when it takes too long.
   */
  async follow(metadata: () => Metadata, learned: () => void): Promise<void> {
    let failures = 0;
    let tried: string[] = [];
    while (!this.#closed) {
      const address = this.pick(undefined, [], tried);
      const client = this.client(address);
      try {
        for await (const r of this.#messages(client, metadata(), learned)) {
          this.#learn(r);
          learned();
          this.#heard = true;
          failures = 0;
          tried = [];
          this.praise(address);
        }
      } catch (err) {
        // Neither a failing token function nor our own cancel is a fault of the node.
        const failed = err instanceof Error && "code" in err && typeof err.code === "number" && err.code !== status.CANCELLED;
        if (err instanceof Silent) this.drop(address, client);
        if (err instanceof Silent || failed) this.penalise(address, 0);
      }
      learned(); // watches use the endpoints
      failures++;
      tried = [...tried.filter((a) => a !== address), address];
      if (!this.#closed) await sleep(backoff(failures));
    }
  }

  /** Follows the map at another node: a node turned out to belong to another cluster. */
  doubt(): void {
    if (this.#heard) this.#following?.cancel();
  }

  /**
   * Yields the messages of the shard map. While it is quiet, it checks the health of the node: a map
   * that does not change sends nothing, and a large one takes a while.
   */
  async *#messages(client: Client, metadata: Metadata, learned: () => void): AsyncGenerator<WatchShardMapResponse> {
    const call = client.makeServerStreamRequest(
      "/shardwatch.v1.ClusterService/WatchShardMap",
      (r: WatchShardMapRequest) => Buffer.from(WatchShardMapRequest.encode(r).finish()),
      (b) => WatchShardMapResponse.decode(b),
      WatchShardMapRequest.create(),
      metadata,
    );
    call.on("error", () => {});
    this.#following = call;
    try {
      const messages = (call as AsyncIterable<WatchShardMapResponse>)[Symbol.asyncIterator]();
      for (let quiet = this.#silenceMs; ; quiet = probeEvery) {
        const next = messages.next();
        while (!(await settles(next, quiet))) {
          await this.#probe(client);
          learned(); // watches start with the endpoints
        }
        const got = await next;
        if (got.done) return;
        yield got.value;
      }
    } finally {
      this.#heard = false;
      call.cancel();
    }
  }

  /** Checks the health of a node over a connection: any answer shows that it is alive. */
  async #probe(client: Client): Promise<void> {
    let call!: ClientUnaryCall;
    const answer = new Promise<void>((there, gone) => {
      call = client.makeUnaryRequest(
        "/grpc.health.v1.Health/Check", (b: Buffer) => b, (b) => b, Buffer.alloc(0),
        (err) => (err?.code === status.UNAVAILABLE ? gone(err) : there()),
      );
    });
    if (!(await settles(answer, this.#silenceMs))) {
      call.cancel();
      throw new Silent();
    }
    await answer;
  }
}
