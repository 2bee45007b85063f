// Executes one task of the conformance cases (docs/protocol.md, section 12).
import { createInterface } from "node:readline";
import { between, Client, type KeyValue, type Position, ShardwatchError, type WatchOptions } from "./index.js";

interface Task {
  op: "watch" | "list" | "get" | "together";
  endpoints: string[];
  key: string;
  range_end: string;
  start: "now" | "state" | "position" | "token";
  position: { cluster: string; lineage: number; revision: number };
  token?: string;
  units: boolean;
  conflate_ms: number;
  bearer?: string;
}

const text = (kvs: KeyValue[]) => kvs.map((kv) => ({ key: kv.key.toString(), value: kv.value.toString() }));

function print(kind: string, p: Position, lists: Record<string, unknown[]>): void {
  const filled = Object.fromEntries(Object.entries(lists).filter(([, items]) => items.length > 0));
  console.log(JSON.stringify({ kind, cluster: p.cluster, lineage: Number(p.lineage), revision: Number(p.revision), ...filled }));
}

function optionsOf(task: Task): WatchOptions {
  const o: WatchOptions = { units: task.units, conflateMs: task.conflate_ms };
  if (task.start === "state") o.state = true;
  if (task.start === "token") o.token = Buffer.from(task.token ?? "", "base64");
  if (task.start === "position") {
    const { cluster, lineage, revision } = task.position;
    o.position = { cluster, lineage: BigInt(lineage), revision: BigInt(revision) };
  }
  return o;
}

async function get(client: Client, task: Task): Promise<void> {
  const got = await client.get(task.key);
  print("get", got.position, { kvs: text(got.kv ? [got.kv] : []) });
}

async function list(client: Client, task: Task): Promise<void> {
  const listing = await client.list(between(task.key, task.range_end));
  print("list", listing.position, { kvs: text(listing.kvs) });
}

async function watch(client: Client, task: Task): Promise<void> {
  for await (const u of client.watch(between(task.key, task.range_end), optionsOf(task))) {
    const events = u.events.map((e) => ({ type: e.deleted ? "DELETE" : "PUT", key: e.kv.key.toString(), value: e.kv.value.toString() }));
    print(u.kind, u.position, { events, kvs: text(u.kvs), deleted: u.deleted.map(String) });
  }
}

const ops = { get: [get], list: [list], watch: [watch], together: [watch, watch, get] };

async function run(task: Task): Promise<void> {
  const { endpoints, bearer } = task;
  const client = new Client({ endpoints, token: bearer === undefined ? undefined : () => bearer });
  try {
    await Promise.all(ops[task.op].map((op) => op(client, task)));
  } catch (err) {
    if (!(err instanceof ShardwatchError)) throw err;
    console.log(JSON.stringify({ error: err.code }));
  } finally {
    client.close();
  }
}

const lines = createInterface({ input: process.stdin });
lines.once("line", (line) => {
  lines.close();
  void run(JSON.parse(line) as Task);
});
