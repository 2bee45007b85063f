// Mirrors a state with keys that are not UTF-8, then the delete of one of them.
import assert from "node:assert/strict";

const { Mirror, prefix } = await import(process.argv[2]);
const keys = [[0x2f, 0xfe], [0x2f, 0xff], [0x2f, 0xef, 0xbf, 0xbd]].map((bytes) => Buffer.from(bytes)); // the last is U+FFFD
const position = { cluster: "c", lineage: 1n, revision: 1n };
const kvs = keys.map((key) => ({ key, value: key, createRevision: 1n, modRevision: 1n, version: 1n, lease: 0n }));
const client = {
  async *watch() {
    yield { kind: "state", position, kvs, events: [], deleted: [] };
    yield { kind: "delta", position, kvs: [], events: [], deleted: [keys[0]] };
  },
};
const mirror = new Mirror(client, prefix("/"));
const changes = mirror.changes();
await changes.next();
assert.deepEqual([...mirror.data.keys()].sort(), ["/\udcfe", "/\udcff", "/\ufffd"]);
assert.deepEqual([...mirror.data.values()].map((kv) => kv.key).sort(Buffer.compare), [...keys].sort(Buffer.compare));
await changes.next();
assert.deepEqual([...mirror.data.keys()].sort(), ["/\udcff", "/\ufffd"]);
