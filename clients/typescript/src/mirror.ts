import { isUtf8 } from "node:buffer";
import type { Client } from "./client.js";
import type { KeyValue, Position, Range, Update } from "./types.js";

/** The change of a key: before is undefined if it is new, after if it was deleted. */
export interface Change {
  /** The name, as in Mirror.data; before and after have the bytes. */
  readonly key: string;
  readonly before: KeyValue | undefined;
  readonly after: KeyValue | undefined;
}

/**
 * Returns the name of a key. Keys that are not UTF-8 must not get the name of another key: their bytes
 * from 0x80 on become lone surrogates, which no UTF-8 text has.
 */
function nameOf(key: Buffer): string {
  if (isUtf8(key)) return key.toString();
  return key.toString("latin1").replace(/[\x80-\xff]/g, (c) => String.fromCharCode(0xdc00 + c.charCodeAt(0)));
}

/** A copy of a range. changes applies the updates, and yields the differences. */
export class Mirror {
  /**
   * The keys, by their name as UTF-8. In the name of a key that is not UTF-8, each byte from 0x80 to
   * 0xff is a code unit from 0xdc80 to 0xdcff.
   */
  readonly data = new Map<string, KeyValue>();
  /** undefined: nothing has arrived yet. */
  position: Position | undefined;

  constructor(private readonly client: Client, private readonly range: Range) {}

  /** Yields the differences of each update. The first list has all keys, and may be empty. */
  async *changes(signal?: AbortSignal): AsyncGenerator<Change[], void, undefined> {
    const start = this.position ? { position: this.position } : { state: true };
    for await (const u of this.client.watch(this.range, signal ? { ...start, signal } : start)) {
      const changes = this.#apply(u);
      this.position = u.position;
      yield changes;
    }
  }

  #apply(u: Update): Change[] {
    const after = new Map<string, KeyValue | undefined>();
    if (u.kind === "state" || u.kind === "resync") for (const key of this.data.keys()) after.set(key, undefined);
    for (const key of u.deleted) after.set(nameOf(key), undefined);
    for (const kv of u.kvs) after.set(nameOf(kv.key), kv);
    for (const e of u.events) after.set(nameOf(e.kv.key), e.deleted ? undefined : e.kv);
    const changes: Change[] = [];
    for (const [key, now] of [...after].sort(([a], [b]) => (a < b ? -1 : 1))) {
      const before = this.data.get(key);
      if (before === now || (before && now && before.modRevision === now.modRevision && before.value.equals(now.value))) continue;
      changes.push({ key, before, after: now });
      if (now) this.data.set(key, now);
      else this.data.delete(key);
    }
    return changes;
  }
}
