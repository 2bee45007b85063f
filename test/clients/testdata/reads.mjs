// Reads from a node that hangs and one that answers, and closes a client that reads.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const index = process.argv[2], proto = join(dirname(index), "proto", "shardwatch", "v1");
const { Client, prefix } = await import(index);
const { GetResponse, ListResponse } = await import(join(proto, "cache.js"));
const { WatchShardMapResponse } = await import(join(proto, "cluster.js"));
const grpc = createRequire(index)("@grpc/grpc-js");

const bytes = (b) => b;
const call = (path, encode, responseStream) => ({
  path, requestStream: false, responseStream, requestSerialize: bytes, requestDeserialize: bytes,
  responseSerialize: (m) => Buffer.from(encode(m).finish()), responseDeserialize: bytes,
});
const services = {
  WatchShardMap: call("/shardwatch.v1.ClusterService/WatchShardMap", WatchShardMapResponse.encode, true),
  List: call("/shardwatch.v1.CacheService/List", ListResponse.encode, true),
  Get: call("/shardwatch.v1.CacheService/Get", GetResponse.encode, false),
};

/** Starts a node whose shard map has no members: clients keep to the order of their endpoints. */
async function start(List, Get) {
  const server = new grpc.Server();
  server.addService(services, { WatchShardMap: (c) => c.write(WatchShardMapResponse.create({ allMembers: true })), List, Get });
  const port = await new Promise((done, failed) => {
    server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (err, p) => (err ? failed(err) : done(p)));
  });
  return { address: `127.0.0.1:${port}`, stop: () => server.forceShutdown() };
}

let asked = 0, arrived = () => {};
const hang = () => {
  asked++;
  arrived();
};
const hung = await start(hang, hang);
const well = await start((c) => {
  c.write(ListResponse.create({ revision: 5n, clusterId: "c", lineage: 1n }));
  c.end();
}, hang);

performance.now = () => 0; // so that no penalty ends
const client = new Client({ endpoints: [hung.address, well.address], timeoutMs: 300 });
for (let i = 0; i < 2; i++) assert.equal((await client.list(prefix("/"))).position.revision, 5n);
assert.equal(asked, 1, "lists that were sent to the node that hangs");
client.close();

const reads = [];
const patient = new Client({ endpoints: [hung.address], timeoutMs: 600_000 });
for (const read of [() => patient.get("/a"), () => patient.list(prefix("/"))]) {
  const there = new Promise((done) => (arrived = done));
  reads.push(assert.rejects(read(), { code: "unavailable", message: "the client is closed" }));
  await there;
}
patient.close();
const late = setTimeout(() => assert.fail("reads of a closed client go on"), 30_000);
await Promise.all(reads);
clearTimeout(late);
hung.stop();
well.stop();
