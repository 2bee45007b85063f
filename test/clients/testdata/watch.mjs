// Does the watch of a task, and closes the client after the first update: the watch must end.
import { readFileSync } from "node:fs";

const { between, Client } = await import(process.argv[2]);
const task = JSON.parse(readFileSync(0, "utf8"));
const client = new Client({ endpoints: task.endpoints });
for await (const u of client.watch(between(task.key, task.range_end))) {
  const events = u.events.map((e) => ({ type: "PUT", key: e.kv.key.toString(), value: e.kv.value.toString() }));
  const { cluster, lineage, revision } = u.position;
  console.log(JSON.stringify({ kind: u.kind, cluster, lineage: Number(lineage), revision: Number(revision), events }));
  setImmediate(() => client.close());
}
