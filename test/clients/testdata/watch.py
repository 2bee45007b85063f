"""Does the watch of a task, and closes the client after the first update: the watch must end."""

import asyncio
import json
import sys

from shardwatch import Client, between


async def main() -> None:
    task = json.loads(sys.stdin.readline())
    client, arrived = Client(task["endpoints"]), asyncio.Event()

    async def watch() -> None:
        async for u in client.watch(between(task["key"], task["range_end"])):
            events = [{"type": "PUT", "key": e.kv.key.decode(), "value": e.kv.value.decode()} for e in u.events]
            line = {"kind": u.kind.value, "cluster": u.position.cluster, "lineage": u.position.lineage, "revision": u.position.revision}
            print(json.dumps(line | {"events": events}), flush=True)
            arrived.set()

    async with client:
        watching = asyncio.create_task(watch())
        await arrived.wait()
        await client.close()
        await watching


asyncio.run(main())
