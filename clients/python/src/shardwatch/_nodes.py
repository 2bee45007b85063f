"""Which node to ask: the shard map, penalties, and the connections."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Callable

import grpc

from .types import Range
from .v1 import cluster_pb2

_MAX_MESSAGE = 64 << 20  # bytes; a list's chunk is about 512 KiB, a shard map may be larger
_OPTIONS = [("grpc.max_receive_message_length", _MAX_MESSAGE)]


def backoff(failures: int, after: float = 0) -> float:
    """Returns the seconds to wait before the next attempt: none before the first retry, then
    a random time below a bound that doubles, and what the node asked for on top."""
    if failures <= 1 and not after:
        return 0
    bound = min(0.05 * 2.0 ** min(max(failures - 2, 0), 8), 2.0)
    return after + random.random() * max(bound, after) + 0.001


class Nodes:
    """The nodes of a cluster, as they are known. Owned by one event loop."""

    def __init__(self, endpoints: list[str], credentials: grpc.ChannelCredentials | None) -> None:
        self._endpoints, self._credentials = endpoints, credentials
        self._seed = random.randbytes(8)
        self._members: dict[str, cluster_pb2.Member] = {}
        self._shards: dict[int, cluster_pb2.Shard] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._boxed: dict[str, tuple[int, float]] = {}  # address: failures in a row, until
        self.version, self.cluster = 0, ""

    def channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            if self._credentials:
                self._channels[address] = grpc.aio.secure_channel(address, self._credentials, options=_OPTIONS)
            else:
                self._channels[address] = grpc.aio.insecure_channel(address, options=_OPTIONS)
        return self._channels[address]

    async def drop(self, address: str) -> None:
        """Closes the connection to a node that is silent."""
        if channel := self._channels.pop(address, None):
            await channel.close()

    async def close(self) -> None:
        for address in list(self._channels):
            await self.drop(address)

    def penalise(self, address: str, at_least: float) -> None:
        failures = self._boxed.get(address, (0, 0.0))[0] + 1
        self._boxed[address] = failures, time.monotonic() + max(min(2.0 ** min(failures - 1, 8), 10), at_least)

    def praise(self, address: str) -> None:
        self._boxed.pop(address, None)

    def pick(self, rng: Range | None, hints: list[str], tried: list[str]) -> str:
        """Returns the best address: one that is not penalised and was not tried; else the one
        that was tried longest ago; else the one whose penalty ends first."""
        now, second, last = time.monotonic(), "", ""
        addresses = list(dict.fromkeys(hints + self._candidates(rng) + self._endpoints))
        for a in addresses:
            if self._boxed.get(a, (0, 0.0))[1] > now:
                if not last or self._boxed[a][1] < self._boxed[last][1]:
                    last = a
            elif a not in tried:
                return a
            elif not second or tried.index(a) < tried.index(second):
                second = a
        return second or last

    def _candidates(self, rng: Range | None) -> list[str]:
        has: dict[str, int] = {}
        for s in self._shards.values():
            end = b"" if s.range_end == b"\0" else s.range_end
            if rng is None or ((not rng.end or s.key < rng.end) and (not end or rng.start < end)):
                for name in s.replicas:
                    has[name] = has.get(name, 0) + 1
        ranked = []
        for m in self._members.values():
            if not m.client_address or m.state in (cluster_pb2.MEMBER_STATE_DEAD, cluster_pb2.MEMBER_STATE_LEFT):
                continue
            worse = m.draining or m.state == cluster_pb2.MEMBER_STATE_SUSPECT
            score = hashlib.blake2b(self._seed + m.name.encode(), digest_size=8).digest()
            ranked.append((worse, -has.get(m.name, 0), score, m.client_address))
        return [address for *_, address in sorted(ranked)]

    def _learn(self, r: cluster_pb2.WatchShardMapResponse) -> None:
        if r.all_members:
            self._members.clear()
        for name in r.removed_members:
            self._members.pop(name, None)
        self._members.update((m.name, m) for m in r.members)
        if not r.HasField("map"):
            return
        if r.map.cluster_id == self.cluster and r.map.version < self.version:
            return  # the node was asleep
        if not r.from_version:
            self._shards.clear()
        for shard in r.removed_shards:
            self._shards.pop(shard, None)
        self._shards.update((s.id, s) for s in r.map.shards)
        self.version, self.cluster = r.map.version, r.map.cluster_id

    async def follow(self, metadata: Callable[[], list[tuple[str, str]]], learned: asyncio.Event) -> None:
        """Keeps the shard map and the members, at one node after the other."""
        failures, tried = 0, list[str]()
        while True:
            address = self.pick(None, [], tried)
            watch = self.channel(address).unary_stream(
                "/shardwatch.v1.ClusterService/WatchShardMap",
                request_serializer=cluster_pb2.WatchShardMapRequest.SerializeToString,
                response_deserializer=cluster_pb2.WatchShardMapResponse.FromString,
            )
            try:
                async for r in watch(cluster_pb2.WatchShardMapRequest(), metadata=metadata()):
                    self._learn(r)
                    learned.set()
                    failures, tried = 0, []
                    self.praise(address)
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
                self.penalise(address, 0)
            finally:
                learned.set()  # watches go on with the endpoints
            failures += 1
            tried.append(address)
            await asyncio.sleep(backoff(failures))
