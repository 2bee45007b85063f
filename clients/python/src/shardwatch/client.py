"""The client: watches, lists and gets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, TypeVar

import grpc

from . import types
from ._assembler import Assembler, key_value
from ._nodes import Nodes, backoff, bounded
from .errors import (
    CompactedError, DeniedError, InvalidError, Leave, LineageError, Silent, UnauthenticatedError, UnavailableError, judge,
)
from .types import Got, KeyValue, Kind, Listing, Position, Range, Update
from .v1 import cache_pb2

_T = TypeVar("_T")
_START_TIMEOUT, _STATE_TIMEOUT = 5.0, 60.0  # seconds for Created
_SETTLED = 1.0  # seconds that a watch must work for its next failure to count as the first
_MAX_ASKED = 5  # nodes that are asked for history before it counts as compacted


class Client:
    """Watches and reads keys through a cluster. Use it as an async context manager.

    endpoints are host:port of some nodes; the client discovers the others. token returns the
    bearer token of each call. silence is how many seconds a node may send nothing before a
    watch leaves it. retry_for is how many seconds a read is retried at one node after another,
    and timeout how many one node may take. max_unit bounds the bytes of a unit; 0: any size.
    """

    def __init__(
        self, endpoints: list[str], *, credentials: grpc.ChannelCredentials | None = None,
        token: Callable[[], str] | None = None, silence: float = 1.0, timeout: float = 4.0,
        retry_for: float = 10.0, max_unit: int = 0,
    ) -> None:
        if not endpoints:
            raise ValueError("no endpoints: name the host:port of at least one node")
        if silence < 0.3:
            raise ValueError("silence must be at least 0.3 s: nodes give a sign of life every 100 ms at most")
        self._token, self._silence, self._timeout, self._retry_for, self._max_unit = token, silence, timeout, retry_for, max_unit
        self._nodes = Nodes(endpoints, credentials)
        self._learned = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Client:
        self._follower = asyncio.create_task(self._nodes.follow(self._metadata, self._learned, self._silence))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections, and with them the watches."""
        if self._follower:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)
        await self._nodes.close()

    def _metadata(self) -> list[tuple[str, str]]:
        return [("authorization", "Bearer " + self._token())] if self._token else []

    async def get(self, key: str | bytes, *, serializable: bool = False) -> Got:
        """Returns one key: linearizable, or with serializable from the data of one node."""
        request = cache_pb2.GetRequest(key=types.key(key).start, consistency=_consistency(serializable))

        async def ask(channel: grpc.aio.Channel) -> Got:
            call = channel.unary_unary(
                "/shardwatch.v1.CacheService/Get", request_serializer=cache_pb2.GetRequest.SerializeToString,
                response_deserializer=cache_pb2.GetResponse.FromString,
            )
            r = await bounded(call(request, metadata=self._metadata(), timeout=self._timeout), self._timeout)
            kv = key_value(r.kv) if r.HasField("kv") else None
            return Got(Position(r.cluster_id, r.lineage, r.revision), kv)

        return await self._read(types.key(key), ask)

    async def list(
        self, rng: Range, *, limit: int = 0, page: bytes = b"", keys_only: bool = False,
        at: Position | None = None, serializable: bool = False,
    ) -> Listing:
        """Returns the keys of a range at one revision. A list that breaks is read again from the start."""
        start, end = rng.wire()
        request = cache_pb2.ListRequest(key=start, range_end=end, limit=limit, page_token=page, keys_only=keys_only)
        if at:
            request.revision, request.cluster_id, request.lineage = at.revision, at.cluster, at.lineage
        elif not page:
            request.consistency = _consistency(serializable)

        async def ask(channel: grpc.aio.Channel) -> Listing:
            call: Any = channel.unary_stream(
                "/shardwatch.v1.CacheService/List", request_serializer=cache_pb2.ListRequest.SerializeToString,
                response_deserializer=cache_pb2.ListResponse.FromString,
            )(request, metadata=self._metadata())
            try:
                kvs, last = list[KeyValue](), cache_pb2.ListResponse()
                while (r := await bounded(call.read(), self._timeout)) is not grpc.aio.EOF:
                    last = r
                    kvs.extend(key_value(m) for m in r.kvs)
                if await call.code() is not grpc.StatusCode.OK:  # read raises it
                    raise Leave("the list broke", penalise=0)
            finally:
                call.cancel()
            return Listing(Position(last.cluster_id, last.lineage, last.revision), kvs, last.next_page_token)

        return await self._read(rng, ask)

    async def _read(self, rng: Range, ask: Callable[[grpc.aio.Channel], Awaitable[_T]]) -> _T:
        loop = asyncio.get_running_loop()
        deadline, failures, tried, hints = loop.time() + self._retry_for, 0, list[str](), list[str]()
        first = max(self._retry_for, self._timeout)  # at least as long as one attempt
        try:
            await asyncio.wait_for(self._learned.wait(), first)
        except asyncio.TimeoutError:
            raise UnavailableError(f"no node sent the shard map within {first} s") from None
        while True:
            address = self._nodes.pick(rng, hints, tried)
            try:
                answer = await ask(self._nodes.channel(address))
                self._nodes.praise(address)
                return answer
            except Exception as err:
                leave = self._judged(err)
            if leave.penalise is not None:
                self._nodes.penalise(address, leave.penalise)
            failures, hints = failures + 1, leave.hints
            tried = [a for a in tried if a != address] + [address]
            wait = backoff(failures, leave.after)
            if loop.time() + wait > deadline:
                raise leave.error or UnavailableError(f"no node answered within {self._retry_for} s: {address}: {leave}")
            await asyncio.sleep(wait)

    def _judged(self, err: Exception) -> Leave:
        """Returns the next step after an error, or raises the error for the application."""
        if isinstance(err, grpc.aio.AioRpcError):
            verdict = judge(err, self._token is not None)
            if isinstance(verdict, Leave):
                return verdict
            raise verdict from err
        if isinstance(err, (grpc.aio.UsageError, asyncio.InvalidStateError)):
            return Leave("the connection was closed", penalise=0)
        if isinstance(err, Leave):
            return err
        raise err

    async def watch(
        self, rng: Range, *, state: bool = False, position: Position | None = None, token: bytes | None = None,
        units: bool = True, conflate: float = 0, prev_kv: bool = False, progress: bool = False,
    ) -> AsyncIterator[Update]:
        """Yields the changes of a range, even if nodes fail: from now, from the state, or after a
        position or resume token of an earlier watch.

        With units, a DELTA or RESYNC replaces history that the nodes no longer have. Without, the
        watch ends with CompactedError or LineageError. conflate replaces events by units and is
        the minimum time between two, in seconds. progress also yields positions alone.
        """
        if sum((state, position is not None, token is not None)) > 1:
            raise InvalidError("state, position and token exclude each other")
        if conflate and (not units or prev_kv):
            raise InvalidError("conflate needs units and excludes prev_kv")
        asm = Assembler(
            rng, state=state, position=position, token=token, units=units, conflate=conflate, prev_kv=prev_kv, max_unit=self._max_unit
        )
        await self._learned.wait()
        loop = asyncio.get_running_loop()
        failures, tried, hints, floors = 0, list[str](), list[str](), dict[str, int]()
        while True:
            address, began = self._nodes.pick(rng, hints, tried), loop.time()
            try:
                async for update in self._attempt(address, asm, floors):
                    if update.kind is not Kind.PROGRESS or progress:
                        yield update
                leave = Leave("node ended the stream", penalise=0)
            except Exception as err:
                if self._nodes.closed:
                    return
                leave = self._judged(err)
            if asm.created and loop.time() - began > _SETTLED:
                failures, tried = 0, []
            if leave.penalise is not None:
                self._nodes.penalise(address, leave.penalise)
            failures, hints = failures + 1, leave.hints
            tried = [a for a in tried if a != address]
            if not leave.stay:
                tried.append(address)
            await asyncio.sleep(backoff(failures, leave.after) + random.random() * 0.02)

    async def _attempt(self, address: str, asm: Assembler, floors: dict[str, int]) -> AsyncIterator[Update]:
        """Watches at one node, until the watch must leave it."""
        loop = asyncio.get_running_loop()
        channel = self._nodes.channel(address)
        call = channel.stream_stream(
            "/shardwatch.v1.CacheService/Watch", request_serializer=cache_pb2.WatchRequest.SerializeToString,
            response_deserializer=cache_pb2.WatchResponse.FromString,
        )(metadata=self._metadata())
        try:
            options, create = cache_pb2.StreamOptions(), asm.begin()
            options.progress_interval.FromNanoseconds(int(self._silence / 3 * 1e9))
            await bounded(call.write(cache_pb2.WatchRequest(options=options)), self._silence)
            await bounded(call.write(cache_pb2.WatchRequest(create=create)), self._silence)
            late = loop.time() + (_STATE_TIMEOUT if create.state_first else _START_TIMEOUT)
            while (r := await self._next(call, address, channel)) is not grpc.aio.EOF:
                detail = r.WhichOneof("detail")
                if detail == "created":
                    if self._nodes.cluster not in ("", r.created.cluster_id):
                        self._nodes.doubt()
                        raise Leave("the node belongs to another cluster than the shard map", after=0.05)
                    update = asm.start(r.created)
                    self._nodes.praise(address)
                    floors.clear()
                elif detail == "ended":
                    raise self._ended(r.ended, asm, address, floors)
                else:
                    update = asm.step(r)
                if update:
                    yield update
                if not asm.created and loop.time() > late:
                    raise Leave("the node did not start the watch in time")
        finally:
            call.cancel()

    async def _next(self, call: Any, address: str, channel: grpc.aio.Channel) -> Any:
        """Returns the next message. If the node is silent for too long, it drops the connection."""
        try:
            return await bounded(call.read(), self._silence)
        except Silent:
            await self._nodes.drop(address, channel)
            raise

    def _ended(self, e: cache_pb2.Ended, asm: Assembler, address: str, floors: dict[str, int]) -> Exception:
        """Returns the meaning of Ended (docs/protocol.md, section 8)."""
        leave = Leave(e.message, hints=list(e.endpoints), after=e.retry_after.ToNanoseconds() / 1e9)
        if e.reason == cache_pb2.END_REASON_INVALID:
            return InvalidError(e.message)
        if e.reason == cache_pb2.END_REASON_DENIED:
            return DeniedError(e.message)
        if e.reason == cache_pb2.END_REASON_UNAUTHENTICATED:
            if not self._token:
                return UnauthenticatedError(e.message)
            leave.stay, leave.after = True, leave.after or 1
        elif e.reason == cache_pb2.END_REASON_COMPACTED and not asm.want_state:
            asked = address in floors
            floors[address] = e.floor
            if asked or len(floors) >= _MAX_ASKED:
                return CompactedError(e.message, min(floors.values()))
        elif e.reason == cache_pb2.END_REASON_LINEAGE:
            if not asm.units and not asm.want_state:
                return LineageError(e.message)
            leave.stay = asm.created
        elif e.reason == cache_pb2.END_REASON_DRAINING:
            leave.penalise = 5
        return leave


def _consistency(serializable: bool) -> cache_pb2.Consistency:
    return cache_pb2.CONSISTENCY_SERIALIZABLE if serializable else cache_pb2.CONSISTENCY_LINEARIZABLE
