import type { Client } from "./client.js";
import type { KeyValue, Position, Range, Update } from "./types.js";

/** What has become of a key: before is undefined if it is new, after if it was deleted. */
export interface Change {
  readonly key: string;
  readonly before: KeyValue | undefined;
  readonly after: KeyValue | undefined;
}

/** A copy of a range. changes applies what arrives, and yields the differences. */
export class Mirror {
  /** The keys, by their name as UTF-8. */
  readonly data = new Map<string, KeyValue>();
  /** undefined: nothing has arrived yet. */
  position: Position | undefined;

  constructor(private readonly client: Client, private readonly range: Range) {}

  /** Yields the differences of each update; first all keys, an empty list if there are none. */
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
    for (const key of u.deleted) after.set(key.toString(), undefined);
    for (const kv of u.kvs) after.set(kv.key.toString(), kv);
    for (const e of u.events) after.set(e.kv.key.toString(), e.deleted ? undefined : e.kv);
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
