import { Leave, ShardwatchError } from "./errors.js";
import { CreateWatch, type Created, type Sync, SyncKind, type WatchResponse } from "./proto/shardwatch/v1/cache.js";
import { EventType, type Event as PbEvent, type KeyValue as PbKeyValue } from "./proto/shardwatch/v1/kv.js";
import { contains, type Event, type KeyValue, type Kind, type Position, type Range, sameHistory, type Update, wire } from "./types.js";

const units = new Map<SyncKind, Kind>([
  [SyncKind.SYNC_KIND_STATE, "state"],
  [SyncKind.SYNC_KIND_DELTA, "delta"],
  [SyncKind.SYNC_KIND_RESYNC, "resync"],
  [SyncKind.SYNC_KIND_CONFLATED, "conflated"],
]);

const overhead = 96; // bytes of memory for a key besides its content

export function keyValue(m: PbKeyValue): KeyValue {
  const { key, value, createRevision, modRevision, version, lease } = m;
  return { key, value, createRevision, modRevision, version, lease };
}

function eventOf(m: PbEvent): Event {
  const kv = keyValue(m.kv!);
  const deleted = m.type === EventType.DELETE;
  return m.prevKv ? { deleted, kv, prev: keyValue(m.prevKv) } : { deleted, kv };
}

const broken = (why: string): Leave => new Leave(`node broke the protocol: ${why}`, { after: 50 });

interface Partial {
  kind: Kind;
  revision: bigint;
  events: Event[];
  kvs: KeyValue[];
  deleted: Buffer[];
  size: number;
}

export interface AssemblerOptions {
  range: Range;
  state: boolean;
  position: Position | undefined;
  token: Buffer | undefined;
  units: boolean;
  conflateMs: number;
  prevKv: boolean;
  maxUnit: number;
}

/**
 * Turns the responses of a watch, from all the nodes that serve it in turn, into updates. step has
 * returned everything up to its position and nothing after it. An attempt that fails leaves it
 * unchanged.
 */
export class Assembler {
  readonly #o: AssemblerOptions;
  wantState: boolean;
  created = false;
  #position: Position | undefined;
  #token: Buffer | undefined;
  #newest: Position | undefined; // its history is the newest of the last cluster
  #there: Position | undefined;
  #behind = false; // only a unit can bridge the gap to the node's start
  #partial: Partial | undefined;

  constructor(o: AssemblerOptions) {
    this.#o = o;
    this.wantState = o.state;
    this.#position = o.position;
    this.#token = o.token;
  }

  /** Starts an attempt, and returns the request for the remaining updates. */
  begin(): CreateWatch {
    this.created = this.#behind = false;
    this.#there = this.#partial = undefined;
    const { conflateMs, prevKv } = this.#o;
    const r = CreateWatch.fromPartial({ watchId: 1n, ...wire(this.#o.range), prevKv, allowSync: this.#o.units });
    if (conflateMs) r.conflate = { seconds: BigInt(Math.trunc(conflateMs / 1000)), nanos: Math.round((conflateMs % 1000) * 1e6) };
    if (this.wantState) r.start = { $case: "stateFirst", stateFirst: true };
    else if (this.#token) r.start = { $case: "resumeToken", resumeToken: this.#token };
    else if (this.#position) {
      r.start = { $case: "startRevision", startRevision: this.#position.revision + 1n };
      r.clusterId = this.#position.cluster;
      r.lineage = this.#position.lineage;
    }
    return r;
  }

  /** Handles Created. Returns the first position of a watch that starts at the current revision. */
  start(c: Created): Update | undefined {
    const there: Position = { cluster: c.clusterId, lineage: c.lineage, revision: c.revision };
    if (!this.#newest || this.#newest.cluster !== there.cluster || this.#newest.lineage < there.lineage) this.#newest = there;
    if (there.lineage !== this.#newest.lineage) throw new Leave("the node has not caught up with the lineage", { after: 50 });
    this.#there = there;
    this.created = true;
    if (this.wantState) {
      this.#behind = true;
    } else if (this.#token) {
      this.#behind = there.revision === 0n;
      if (!this.#behind) {
        this.#position = there;
        this.#token = undefined;
      }
    } else if (!this.#position) {
      this.#position = there;
      return { kind: "progress", position: there, events: [], kvs: [], deleted: [] };
    } else if (!sameHistory(this.#position, there)) {
      if (!this.#o.units) throw new ShardwatchError("lineage", "the position belongs to another history");
      this.#behind = true;
    } else if (there.revision > this.#position.revision) {
      if (!this.#o.units) throw broken(`starts after revision ${there.revision}, requested ${this.#position.revision}`);
      this.#behind = true;
    }
    return undefined;
  }

  /** Handles a response with events, a unit or progress, and returns the update that it completes. */
  step(r: WatchResponse): Update | undefined {
    if (!this.created && r.detail?.$case !== "progress") throw broken("data before Created");
    switch (r.detail?.$case) {
      case "sync":
        return this.#sync(r.detail.sync);
      case "progress":
        return this.#progress(r.detail.progress.revision);
    }
    return r.events.length > 0 ? this.#events(r) : undefined;
  }

  #events(r: WatchResponse): Update | undefined {
    const p = this.#partial;
    if (this.#behind) throw broken("events before a unit");
    if (p && (p.kind !== "batch" || p.revision !== r.revision)) {
      throw broken(`revision ${r.revision} before ${p.kind} at revision ${p.revision} was complete`);
    }
    if (this.#position && r.revision <= this.#position.revision) return undefined; // already received from another node
    this.#partial ??= { kind: "batch", revision: r.revision, events: [], kvs: [], deleted: [], size: 0 };
    for (const m of r.events) {
      this.#check(m.kv?.key);
      this.#partial.events.push(eventOf(m));
    }
    return r.fragment ? undefined : this.#complete();
  }

  #check(key: Buffer | undefined): void {
    if (!key?.length || !contains(this.#o.range, key)) throw broken(`key ${key} is outside the range`);
  }

  #sync(s: Sync): Update | undefined {
    const kind = units.get(s.kind);
    if (s.begin) this.#beginUnit(s, kind);
    const p = this.#partial;
    if (!p || p.kind !== kind || p.revision !== s.revision) throw broken("a part of a unit that has not begun");
    for (const m of s.kvs) {
      this.#check(m.key);
      p.kvs.push(keyValue(m));
      p.size += overhead + m.key.length + m.value.length;
    }
    for (const key of s.deleted) {
      this.#check(key);
      p.deleted.push(key);
      p.size += overhead + key.length;
    }
    if (this.#o.maxUnit && p.size > this.#o.maxUnit) {
      throw new ShardwatchError("too big", `${p.kind} at revision ${p.revision} has more than ${this.#o.maxUnit} bytes`);
    }
    if (!s.end) return undefined;
    p.kvs.sort((a, b) => Buffer.compare(a.key, b.key));
    p.deleted.sort(Buffer.compare);
    const keys = new Set([...p.kvs.map((kv) => kv.key), ...p.deleted].map((k) => k.toString("latin1")));
    if (keys.size < p.kvs.length + p.deleted.length) throw broken("a key twice in a unit");
    const old = this.#comparable() && p.revision === this.#position?.revision;
    const done = this.#complete();
    return old ? undefined : done;
  }

  #comparable(): boolean {
    return !!this.#there && !!this.#position && !this.#token && sameHistory(this.#position, this.#there);
  }

  #beginUnit(s: Sync, kind: Kind | undefined): void {
    const changes = kind === "delta" || kind === "conflated";
    if (this.#partial?.kind === "batch") throw broken("a unit before a revision was complete");
    if (!kind || (kind === "state") !== this.wantState || (!this.#o.units && kind !== "state")) {
      throw broken("a unit that was not requested");
    }
    if (kind === "conflated" && !this.#o.conflateMs) throw broken("conflation that was not requested");
    if (changes && !this.#comparable()) throw broken(`${kind} from one history to another`);
    if (this.#comparable() && s.revision < this.#position!.revision) throw new Leave("the node has not caught up", { after: 50 });
    if (changes && s.fromRevision > this.#position!.revision) {
      throw broken(`${kind} from revision ${s.fromRevision}, the watch is at ${this.#position!.revision}`);
    }
    this.#partial = { kind, revision: s.revision, events: [], kvs: [], deleted: [], size: 0 };
  }

  #progress(revision: bigint): Update | undefined {
    if (!this.created || this.#behind || this.#partial || !this.#position || revision <= this.#position.revision) return undefined;
    this.#position = { ...this.#position, revision };
    return { kind: "progress", position: this.#position, events: [], kvs: [], deleted: [] };
  }

  #complete(): Update {
    const p = this.#partial!;
    this.#partial = this.#token = undefined;
    this.#behind = this.wantState = false;
    this.#position = { cluster: this.#there!.cluster, lineage: this.#there!.lineage, revision: p.revision };
    return { kind: p.kind, position: this.#position, events: p.events, kvs: p.kvs, deleted: p.deleted };
  }
}
