"""Selects nodes: the shard map, penalties, and the connections."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc

from .errors import Leave, Silent, UnavailableError
from .types import Range
from .v1 import cluster_pb2

_T = TypeVar("_T")
_SLICES = 6  # parts of a silence: time in which the process is stopped counts as one part at most
_PROBE_EVERY = 5.0  # seconds that the shard map may be quiet before a health check of its node
_MAX_MESSAGE = 64 << 20  # bytes; a list's chunk is about 512 KiB, a shard map may be larger
_OPTIONS = [("grpc.max_receive_message_length", _MAX_MESSAGE)]


def backoff(failures: int, after: float = 0) -> float:
    """Returns the seconds to wait before the next attempt: none before the first retry, then
    a random time below a bound that doubles, plus the delay that the node requested."""
    if failures <= 1 and not after:
        return 0
    bound = min(0.05 * 2.0 ** min(max(failures - 2, 0), 8), 2.0)
    return after + random.random() * max(bound, after) + 0.001


async def arrives(message: asyncio.Future[_T], within: float) -> bool:
    """Waits for a message, for the given seconds in which this process runs."""
    for _ in range(_SLICES):
        if (await asyncio.wait({message}, timeout=within / _SLICES))[0]:
            return True
    return False


async def bounded(call: Awaitable[_T], within: float) -> _T:
    """Awaits a call, or a part of one, for the given seconds. Then it cancels the call and raises Silent."""
    answer = asyncio.ensure_future(call)
    try:
        if not await arrives(answer, within):
            raise Silent
    finally:
        await _end(answer)
    return _result(answer)


async def _end(call: asyncio.Future[_T]) -> None:
    if not call.done():
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


def _result(call: asyncio.Future[_T]) -> _T:
    """Returns the result of a call. gRPC cancels the calls of a closed connection, which does not
    cancel the task that waits for them."""
    if call.cancelled():
        raise Leave("the connection was closed")
    return call.result()


class Nodes:
    """The known nodes of a cluster. Owned by one event loop."""

    def __init__(self, endpoints: list[str], credentials: grpc.ChannelCredentials | None) -> None:
        self._endpoints, self._credentials = endpoints, credentials
        self._seed = random.randbytes(8)
        self._members: dict[str, cluster_pb2.Member] = {}
        self._shards: dict[int, cluster_pb2.Shard] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._boxed: dict[str, tuple[int, float]] = {}  # address: failures in a row, until
        self.version, self.cluster = 0, ""
        self.closed = False
        self._following: Any = None  # the call that sent the current map

    def channel(self, address: str) -> grpc.aio.Channel:
        if self.closed:
            raise UnavailableError("the client is closed")
        if address not in self._channels:
            if self._credentials:
                self._channels[address] = grpc.aio.secure_channel(address, self._credentials, options=_OPTIONS)
            else:
                self._channels[address] = grpc.aio.insecure_channel(address, options=_OPTIONS)
        return self._channels[address]

    async def drop(self, address: str, channel: grpc.aio.Channel) -> None:
        """Closes the connection to a silent node, unless a new one has replaced it."""
        if self._channels.get(address) is channel:
            del self._channels[address]
            await channel.close()

    async def close(self) -> None:
        self.closed = True
        for address, channel in list(self._channels.items()):
            await self.drop(address, channel)

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
            return  # the node was suspended
        if not r.from_version:
            self._shards.clear()
        for shard in r.removed_shards:
            self._shards.pop(shard, None)
        self._shards.update((s.id, s) for s in r.map.shards)
        self.version, self.cluster = r.map.version, r.map.cluster_id

    async def follow(self, metadata: Callable[[], list[tuple[str, str]]], learned: asyncio.Event, silence: float) -> None:
        """Follows the shard map and the members at one node after another. learned is set when the
        map is known, or when it takes too long."""
        failures, tried = 0, list[str]()
        while True:
            address = self.pick(None, [], tried)
            channel = self.channel(address)
            watch = channel.unary_stream(
                "/shardwatch.v1.ClusterService/WatchShardMap",
                request_serializer=cluster_pb2.WatchShardMapRequest.SerializeToString,
                response_deserializer=cluster_pb2.WatchShardMapResponse.FromString,
            )
            try:
                call, quiet = watch(cluster_pb2.WatchShardMapRequest(), metadata=metadata()), silence
                while (r := await self._next(call, quiet, channel, learned, silence)) is not grpc.aio.EOF:
                    self._learn(r)
                    learned.set()
                    failures, tried, quiet, self._following = 0, [], _PROBE_EVERY, call
                    self.praise(address)
            except Silent:
                self.penalise(address, 0)
                await self.drop(address, channel)
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
                self.penalise(address, 0)
            except Exception:
                pass  # the connection was closed, or there is no token: reads and watches report that
            finally:
                self._following = None
                learned.set()  # watches use the endpoints
            failures += 1
            tried = [a for a in tried if a != address] + [address]
            await asyncio.sleep(backoff(failures))

    def doubt(self) -> None:
        """Follows the map at another node: a node turned out to belong to another cluster."""
        if self._following:
            self._following.cancel()

    async def _next(self, call: Any, quiet: float, channel: grpc.aio.Channel, learned: asyncio.Event, silence: float) -> Any:
        """Returns the next message of the shard map. After the given seconds without one, it checks
        the health of the node: a map that does not change sends nothing, and a large one takes
        a while."""
        message = asyncio.ensure_future(call.read())
        try:
            while not await arrives(message, quiet):
                await self._probe(channel, silence)
                learned.set()  # watches start with the endpoints
        finally:
            await _end(message)
        return _result(message)

    async def _probe(self, channel: grpc.aio.Channel, silence: float) -> None:
        """Checks the health of a node: any answer shows that it is alive."""
        check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            await bounded(check(b""), silence)
        except grpc.aio.AioRpcError as err:
            if err.code() is grpc.StatusCode.UNAVAILABLE:
                raise
