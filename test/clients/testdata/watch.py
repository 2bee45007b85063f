"""Does the watch of a task, and closes the client after some updates: the watch must end. The
program has no token when the client asks for the first time."""

import asyncio
import itertools
import json
import sys

from shardwatch import Client, between


async def main() -> None:
    task = json.loads(sys.stdin.readline())
    asked = itertools.count()

    def token() -> str:
        if next(asked) == 0:
            raise OSError("there is no token yet")
        return "secret"

    client, arrived = Client(task["endpoints"], token=token), asyncio.Semaphore(0)

    async def watch() -> None:
        async for u in client.watch(between(task["key"], task["range_end"])):
            events = [{"type": "PUT", "key": e.kv.key.decode(), "value": e.kv.value.decode()} for e in u.events]
            line = {"kind": u.kind.value, "cluster": u.position.cluster, "lineage": u.position.lineage, "revision": u.position.revision}
            print(json.dumps(line | {"events": events}), flush=True)
            arrived.release()

    async with client:
        watching = asyncio.create_task(watch())
        for _ in range(int(sys.argv[1])):
            await arrived.acquire()
        await client.close()
        await watching


asyncio.run(main())
