import { type ChannelCredentials, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { Assembler, keyValue } from "./assembler.js";
import { judge, Leave, ShardwatchError, Silent } from "./errors.js";
import { backoff, Nodes, settles, sleep } from "./nodes.js";
import {
  Consistency, type Ended, EndReason, GetRequest, GetResponse, ListRequest, ListResponse, WatchRequest, WatchResponse,
} from "./proto/shardwatch/v1/cache.js";
import { type Bytes, type Got, key as keyRange, type KeyValue, type Listing, type Position, type Range, type Update, wire } from "./types.js";

const startTimeout = 5_000, stateTimeout = 60_000; // milliseconds for Created
const settled = 1_000; // milliseconds that a watch must work for its next failure to count as the first
const maxAsked = 5; // nodes that are asked for history before it counts as compacted

export interface Config {
  /** host:port of some nodes; the client discovers the others. */
  endpoints: string[];
  /** TLS, as grpc.credentials.createSsl returns it; default: no TLS. */
  credentials?: ChannelCredentials;
  /** Returns the bearer token of each call. */
  token?: () => string;
  /** How long a node may send nothing before a watch leaves it. Default 1,000. */
  silenceMs?: number;
  /** How long one node may take to answer a read. Default 4,000. */
  timeoutMs?: number;
  /** How long a read is retried at one node after another. Default 10,000. */
  retryForMs?: number;
  /** Maximum bytes of a unit; default 0: any size. */
  maxUnit?: number;
}

export interface WatchOptions {
  /** Send the state first. Excludes position and token. */
  state?: boolean;
  /** Resume after a position, or a resume token, of an earlier watch. */
  position?: Position;
  token?: Uint8Array;
  /** false: end with "compacted" or "lineage" instead of a delta or resync. */
  units?: boolean;
  /** Replaces events by units: the minimum time between two. */
  conflateMs?: number;
  prevKv?: boolean;
  /** Also yield positions alone. */
  progress?: boolean;
  /** Ends the watch. */
  signal?: AbortSignal;
}

export interface ListOptions {
  limit?: number;
  /** nextPage of the previous page. */
  page?: Uint8Array;
  keysOnly?: boolean;
  /** The exact position to list at. */
  at?: Position;
  /** Reads the data of one node instead of a linearizable list. */
  serializable?: boolean;
}

/** Watches and reads keys through a cluster. Close it when done. */
export class Client {
  readonly #c: Required<Omit<Config, "credentials" | "token">> & Pick<Config, "token">;
  readonly #nodes: Nodes;
  readonly #learned: Promise<void>;
  readonly #calls = new Set<{ cancel(): void }>(); // open calls
  #closed = false;

  constructor(config: Config) {
    if (config.endpoints.length === 0) throw new ShardwatchError("invalid", "no endpoints: name the host:port of at least one node");
    if ((config.silenceMs ?? 1000) < 300) throw new ShardwatchError("invalid", "silenceMs must be at least 300: nodes give a sign of life every 100 ms at most");
    this.#c = { silenceMs: 1000, timeoutMs: 4000, retryForMs: 10_000, maxUnit: 0, ...config };
    this.#nodes = new Nodes(config.endpoints, config.credentials, this.#c.silenceMs);
    this.#learned = new Promise((learned) => void this.#nodes.follow(() => this.#metadata(), learned));
  }

  /** Closes all connections, and ends the watches and reads. */
  close(): void {
    this.#closed = true;
    for (const call of this.#calls) call.cancel();
    this.#nodes.close();
  }

  #metadata(): Metadata {
    const m = new Metadata();
    if (this.#c.token) m.set("authorization", `Bearer ${this.#c.token()}`);
    return m;
  }

  /** Returns one key: linearizable, or from the data of one node. */
  async get(name: Bytes, options: { serializable?: boolean } = {}): Promise<Got> {
    const range = keyRange(name);
    const request = GetRequest.fromPartial({ key: range.start, consistency: consistency(options.serializable) });
    return this.#read(range, (address) => new Promise((done, failed) => {
      const call = this.#nodes.client(address).makeUnaryRequest(
        "/shardwatch.v1.CacheService/Get",
        (r: GetRequest) => Buffer.from(GetRequest.encode(r).finish()),
        (b) => GetResponse.decode(b),
        request, this.#metadata(), { deadline: Date.now() + this.#c.timeoutMs },
        (err, r) => {
          this.#calls.delete(call);
          if (err) failed(err);
          else done({ position: positionOf(r!), kv: r!.kv && keyValue(r!.kv) });
        },
      );
      this.#calls.add(call);
    }));
  }

  /** Returns the keys of a range at one revision. A list that breaks is read again from the start. */
  async list(range: Range, options: ListOptions = {}): Promise<Listing> {
    const { limit = 0, page, keysOnly = false, at } = options;
    const request = ListRequest.fromPartial({ ...wire(range), limit: BigInt(limit), keysOnly });
    if (page) request.pageToken = Buffer.from(page);
    if (at) Object.assign(request, { revision: at.revision, clusterId: at.cluster, lineage: at.lineage });
    else if (!page) request.consistency = consistency(options.serializable);
    return this.#read(range, async (address) => {
      const call = this.#nodes.client(address).makeServerStreamRequest(
        "/shardwatch.v1.CacheService/List",
        (r: ListRequest) => Buffer.from(ListRequest.encode(r).finish()),
        (b) => ListResponse.decode(b),
        request, this.#metadata(),
      );
      call.on("error", () => {});
      this.#calls.add(call);
      let silent = false;
      const late = () => {
        silent = true;
        call.cancel();
      };
      let timer = setTimeout(late, this.#c.timeoutMs);
      try {
        const kvs: KeyValue[] = [];
        let last = ListResponse.create();
        for await (const r of call as AsyncIterable<ListResponse>) {
          clearTimeout(timer);
          timer = setTimeout(late, this.#c.timeoutMs);
          for (const m of r.kvs) kvs.push(keyValue(m));
          last = r;
        }
        return { position: positionOf(last), kvs, nextPage: last.nextPageToken };
      } catch (err) {
        throw silent ? new Silent() : err;
      } finally {
        clearTimeout(timer);
        this.#calls.delete(call);
        call.cancel();
      }
    });
  }

  async #read<T>(range: Range, ask: (address: string) => Promise<T>): Promise<T> {
    const deadline = performance.now() + this.#c.retryForMs;
    const first = Math.max(this.#c.retryForMs, this.#c.timeoutMs); // at least as long as one attempt
    if (!(await settles(this.#learned, first))) {
      throw new ShardwatchError("unavailable", `no node sent the shard map within ${first} ms`);
    }
    let hints: string[] = [], tried: string[] = [];
    for (let failures = 1; ; failures++) {
      const address = this.#nodes.pick(range, hints, tried);
      let leave: Leave;
      try {
        const answer = await ask(address);
        this.#nodes.praise(address);
        return answer;
      } catch (err) {
        leave = this.#judged(err);
      }
      if (this.#closed) throw new ShardwatchError("unavailable", "the client is closed");
      if (leave.penalise !== undefined) this.#nodes.penalise(address, leave.penalise);
      hints = leave.hints;
      tried = [...tried.filter((a) => a !== address), address];
      const wait = backoff(failures, leave.after);
      if (performance.now() + wait > deadline) {
        throw leave.error ?? new ShardwatchError("unavailable", `no node answered within ${this.#c.retryForMs} ms: ${address}: ${leave.message}`);
      }
      await sleep(wait);
    }
  }

  /** Returns the next step after an error, or throws the error for the application. */
  #judged(err: unknown): Leave {
    if (err instanceof Leave) return err;
    if (err instanceof Error && "code" in err && typeof err.code === "number" && status[err.code] !== undefined) {
      err = judge(err as ServiceError, this.#c.token !== undefined);
      if (err instanceof Leave) return err;
    }
    throw err;
  }

  /**
   * Yields the changes of a range, even if nodes fail: from now, from the state, or after a position
   * or resume token. A delta or resync replaces history that the nodes no longer have.
   */
  async *watch(range: Range, options: WatchOptions = {}): AsyncGenerator<Update, void, undefined> {
    const { state = false, position, token, units = true, conflateMs = 0, prevKv = false, progress = false, signal } = options;
    if (Number(state) + Number(!!position) + Number(!!token) > 1) throw new ShardwatchError("invalid", "state, position and token exclude each other");
    if (conflateMs && (!units || prevKv)) throw new ShardwatchError("invalid", "conflateMs needs units and excludes prevKv");
    const assembler = new Assembler({
      range, state, position, token: token && Buffer.from(token), units, conflateMs, prevKv, maxUnit: this.#c.maxUnit,
    });
    await this.#mapped(signal);
    const floors = new Map<string, bigint>();
    let failures = 0, hints: string[] = [], tried: string[] = [];
    while (!this.#closed && !signal?.aborted) {
      const address = this.#nodes.pick(range, hints, tried);
      const began = performance.now();
      let leave = new Leave("node ended the stream", { penalise: 0 });
      try {
        for await (const u of this.#attempt(address, assembler, units, floors, signal)) {
          if (u.kind !== "progress" || progress) yield u;
        }
      } catch (err) {
        if (this.#closed || signal?.aborted) return;
        leave = this.#judged(err);
      }
      if (assembler.created && performance.now() - began > settled) {
        failures = 0;
        tried = [];
      }
      if (leave.penalise !== undefined) this.#nodes.penalise(address, leave.penalise);
      failures++;
      hints = leave.hints;
      tried = tried.filter((a) => a !== address);
      if (!leave.stay) tried.push(address);
      await sleep(backoff(failures, leave.after) + Math.random() * 20);
    }
  }

  /** Waits until the map is known or takes too long, or signal is aborted. */
  async #mapped(signal: AbortSignal | undefined): Promise<void> {
    let abort = () => {};
    const aborted = new Promise<void>((done) => (abort = done));
    signal?.addEventListener("abort", abort);
    if (!signal?.aborted) await Promise.race([this.#learned, aborted]);
    signal?.removeEventListener("abort", abort);
  }

  /** Watches at one node, until the watch must leave it. */
  async *#attempt(
    address: string, assembler: Assembler, units: boolean, floors: Map<string, bigint>, signal: AbortSignal | undefined,
  ): AsyncGenerator<Update, void, undefined> {
    const client = this.#nodes.client(address);
    const call = client.makeBidiStreamRequest(
      "/shardwatch.v1.CacheService/Watch",
      (r: WatchRequest) => Buffer.from(WatchRequest.encode(r).finish()),
      (b) => WatchResponse.decode(b),
      this.#metadata(),
    );
    const abort = () => call.cancel();
    call.on("error", () => {});
    signal?.addEventListener("abort", abort);
    this.#calls.add(call);
    try {
      const nanos = Math.round((this.#c.silenceMs / 3) * 1e6);
      const progressInterval = { seconds: BigInt(Math.trunc(nanos / 1e9)), nanos: nanos % 1e9 };
      call.write(WatchRequest.fromPartial({ request: { $case: "options", options: { progressInterval } } }));
      const late = performance.now() + (assembler.wantState ? stateTimeout : startTimeout);
      call.write(WatchRequest.fromPartial({ request: { $case: "create", create: assembler.begin() } }));
      const messages = (call as AsyncIterable<WatchResponse>)[Symbol.asyncIterator]();
      for (;;) {
        const next = messages.next();
        if (!(await settles(next, this.#c.silenceMs))) {
          this.#nodes.drop(address, client);
          throw new Silent();
        }
        const got = await next;
        if (got.done) return;
        const r = got.value;
        let update: Update | undefined;
        if (r.detail?.$case === "created") {
          if (this.#nodes.cluster && this.#nodes.cluster !== r.detail.created.clusterId) {
            this.#nodes.doubt();
            throw new Leave("the node belongs to another cluster than the shard map", { after: 50 });
          }
          update = assembler.start(r.detail.created);
          this.#nodes.praise(address);
          floors.clear();
        } else if (r.detail?.$case === "ended") {
          throw this.#ended(r.detail.ended, assembler, units, address, floors);
        } else {
          update = assembler.step(r);
        }
        if (update) yield update;
        if (!assembler.created && performance.now() > late) throw new Leave("the node did not start the watch in time");
      }
    } finally {
      signal?.removeEventListener("abort", abort);
      this.#calls.delete(call);
      call.cancel();
    }
  }

  /** Returns the meaning of Ended (docs/protocol.md, section 8). */
  #ended(e: Ended, assembler: Assembler, units: boolean, address: string, floors: Map<string, bigint>): Error {
    const after = e.retryAfter ? Number(e.retryAfter.seconds) * 1000 + e.retryAfter.nanos / 1e6 : 0;
    const leave = new Leave(e.message, { hints: e.endpoints, after });
    switch (e.reason) {
      case EndReason.END_REASON_INVALID:
        return new ShardwatchError("invalid", e.message);
      case EndReason.END_REASON_DENIED:
        return new ShardwatchError("denied", e.message);
      case EndReason.END_REASON_UNAUTHENTICATED:
        if (!this.#c.token) return new ShardwatchError("unauthenticated", e.message);
        leave.stay = true;
        leave.after ||= 1000;
        break;
      case EndReason.END_REASON_COMPACTED: {
        if (assembler.wantState) break;
        const asked = floors.has(address);
        floors.set(address, e.floor);
        const lowest = [...floors.values()].reduce((a, b) => (a < b ? a : b));
        if (asked || floors.size >= maxAsked) return new ShardwatchError("compacted", e.message, lowest);
        break;
      }
      case EndReason.END_REASON_LINEAGE:
        if (!units && !assembler.wantState) return new ShardwatchError("lineage", e.message);
        leave.stay = assembler.created;
        break;
      case EndReason.END_REASON_DRAINING:
        leave.penalise = 5000;
    }
    return leave;
  }
}

const consistency = (serializable = false): Consistency =>
  serializable ? Consistency.CONSISTENCY_SERIALIZABLE : Consistency.CONSISTENCY_LINEARIZABLE;

const positionOf = (r: { clusterId: string; lineage: bigint; revision: bigint }): Position =>
  ({ cluster: r.clusterId, lineage: r.lineage, revision: r.revision });
