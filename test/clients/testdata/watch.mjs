// Does the watch of a task, and closes the client after some updates: the watch must end. The
// program has no token when the client asks for the first time.
import { readFileSync } from "node:fs";

const { between, Client } = await import(process.argv[2]);
const task = JSON.parse(readFileSync(0, "utf8"));
let left = Number(process.argv[3]), asked = 0;
const token = () => {
  if (asked++ === 0) throw new Error("there is no token yet");
  return "secret";
};
const client = new Client({ endpoints: task.endpoints, token });
for await (const u of client.watch(between(task.key, task.range_end))) {
  const events = u.events.map((e) => ({ type: "PUT", key: e.kv.key.toString(), value: e.kv.value.toString() }));
  const { cluster, lineage, revision } = u.position;
  console.log(JSON.stringify({ kind: u.kind, cluster, lineage: Number(lineage), revision: Number(revision), events }));
  if (--left === 0) setImmediate(() => client.close());
}
