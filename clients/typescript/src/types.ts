/** The keys k with start <= k < end; an empty end means the end of the key space. */
export interface Range {
  readonly start: Buffer;
  readonly end: Buffer;
}

export type Bytes = string | Uint8Array;

const bytes = (key: Bytes): Buffer => (typeof key === "string" ? Buffer.from(key) : Buffer.from(key));

/** Returns the range that holds one key. */
export function key(name: Bytes): Range {
  const start = bytes(name);
  return { start, end: Buffer.concat([start, Buffer.from([0])]) };
}

/** Returns the range of all keys that begin with name. */
export function prefix(name: Bytes): Range {
  const start = bytes(name);
  for (let i = start.length - 1; i >= 0; i--) {
    if (start[i]! < 0xff) {
      const end = Buffer.from(start.subarray(0, i + 1));
      end[i]! += 1;
      return { start, end };
    }
  }
  return { start, end: Buffer.alloc(0) };
}

/** Returns the range of the keys k with start <= k < end. */
export function between(start: Bytes, end: Bytes): Range {
  return { start: bytes(start), end: bytes(end) };
}

export function contains(r: Range, key: Buffer): boolean {
  return Buffer.compare(r.start, key) <= 0 && (r.end.length === 0 || Buffer.compare(key, r.end) < 0);
}

/** Returns key and rangeEnd of a request. */
export function wire(r: Range): { key: Buffer; rangeEnd: Buffer } {
  const zero = Buffer.from([0]);
  return { key: r.start.length ? r.start : zero, rangeEnd: r.end.length ? r.end : zero };
}

/** A revision with the history it belongs to: the cluster and its lineage. */
export interface Position {
  readonly cluster: string;
  readonly lineage: bigint;
  readonly revision: bigint;
}

export function sameHistory(a: Position, b: Position): boolean {
  return a.cluster === b.cluster && a.lineage === b.lineage;
}

/** Returns a position as text, for parsePosition. */
export function formatPosition(p: Position): string {
  return JSON.stringify([p.cluster, String(p.lineage), String(p.revision)]);
}

export function parsePosition(text: string): Position {
  const [cluster, lineage, revision] = JSON.parse(text) as [string, string, string];
  return { cluster, lineage: BigInt(lineage), revision: BigInt(revision) };
}

/** One key at one revision. */
export interface KeyValue {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  readonly version: bigint;
  readonly lease: bigint;
}

/** One change of one key. For a deleted key, kv has only key and modRevision. */
export interface Event {
  readonly deleted: boolean;
  readonly kv: KeyValue;
  readonly prev?: KeyValue;
}

/**
 * The kind of an update:
 * - batch: events are all changes of the range at the position's revision
 * - state: kvs are all keys of the range; it comes first, if requested
 * - delta: kvs and deleted are the changes since the last update
 * - resync: kvs are all keys of the range, replacing all known ones
 * - conflated: as delta, because conflation was requested
 * - progress: only a position; only if requested
 */
export type Kind = "batch" | "state" | "delta" | "resync" | "conflated" | "progress";

/** One step of a watch: always a whole revision or a whole unit. */
export interface Update {
  readonly kind: Kind;
  readonly position: Position;
  readonly events: Event[];
  readonly kvs: KeyValue[];
  readonly deleted: Buffer[];
}

/** The keys of a range at one revision. */
export interface Listing {
  readonly position: Position;
  readonly kvs: KeyValue[];
  readonly nextPage: Buffer;
}

/** The result of a get. */
export interface Got {
  readonly position: Position;
  readonly kv: KeyValue | undefined;
}
