"""Executes one task of the conformance cases (docs/protocol.md, section 12)."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

from . import Client, Error, KeyValue, Position, Update, between


def _kvs(kvs: list[KeyValue]) -> list[dict[str, str]]:
    return [{"key": kv.key.decode(), "value": kv.value.decode()} for kv in kvs]


def _print(kind: str, position: Position, **lists: Any) -> None:
    line = {"kind": kind, "cluster": position.cluster, "lineage": position.lineage, "revision": position.revision}
    print(json.dumps(line | {name: items for name, items in lists.items() if items}), flush=True)


def _update(u: Update) -> None:
    events = [
        {"type": "DELETE" if e.deleted else "PUT", "key": e.kv.key.decode(), "value": e.kv.value.decode()} for e in u.events
    ]
    _print(u.kind.value, u.position, events=events, kvs=_kvs(u.kvs), deleted=[key.decode() for key in u.deleted])


async def _get(client: Client, task: dict[str, Any]) -> None:
    got = await client.get(task["key"])
    _print("get", got.position, kvs=_kvs([got.kv] if got.kv else []))


async def _list(client: Client, task: dict[str, Any]) -> None:
    listing = await client.list(between(task["key"], task["range_end"]))
    _print("list", listing.position, kvs=_kvs(listing.kvs))


async def _watch(client: Client, task: dict[str, Any]) -> None:
    start = task["start"]
    updates = client.watch(
        between(task["key"], task["range_end"]), state=start == "state",
        position=Position(**task["position"]) if start == "position" else None,
        token=base64.b64decode(task["token"]) if start == "token" else None, units=task["units"],
        conflate=task["conflate_ms"] / 1000,
    )
    async for update in updates:
        _update(update)


_OPS = {"get": [_get], "list": [_list], "watch": [_watch], "together": [_watch, _watch, _get]}


async def _run(task: dict[str, Any]) -> None:
    bearer = task.get("bearer")
    async with Client(task["endpoints"], token=(lambda: bearer) if bearer else None) as client:
        await asyncio.gather(*(op(client, task) for op in _OPS[task["op"]]))


def main() -> None:
    try:
        asyncio.run(_run(json.loads(sys.stdin.readline())))
    except Error as err:
        print(json.dumps({"error": err.word}), flush=True)


if __name__ == "__main__":
    main()
