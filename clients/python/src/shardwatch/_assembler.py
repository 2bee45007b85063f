"""Turns the responses of a watch, from all the nodes that serve it in turn, into updates."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import Leave, LineageError, TooBigError
from .types import Event, KeyValue, Kind, Position, Range, Update
from .v1 import cache_pb2, kv_pb2

_UNITS = {
    cache_pb2.SYNC_KIND_STATE: Kind.STATE,
    cache_pb2.SYNC_KIND_DELTA: Kind.DELTA,
    cache_pb2.SYNC_KIND_RESYNC: Kind.RESYNC,
    cache_pb2.SYNC_KIND_CONFLATED: Kind.CONFLATED,
}

_OVERHEAD = 96  # bytes of memory for a key besides its content


def key_value(m: kv_pb2.KeyValue) -> KeyValue:
    return KeyValue(m.key, m.value, m.create_revision, m.mod_revision, m.version, m.lease)


def _event(m: kv_pb2.Event) -> Event:
    prev = key_value(m.prev_kv) if m.HasField("prev_kv") else None
    return Event(m.type == kv_pb2.DELETE, key_value(m.kv), prev)


def _broken(why: str) -> Leave:
    return Leave(f"node broke the protocol: {why}", after=0.05)


@dataclass
class _Partial:
    """An incomplete update."""

    kind: Kind
    revision: int
    events: list[Event]
    kvs: list[KeyValue]
    deleted: list[bytes]
    size: int = 0


class Assembler:
    """Holds the position of a watch. step has returned everything up to it and nothing
    after it. An attempt that fails leaves it unchanged."""

    def __init__(
        self, rng: Range, *, state: bool, position: Position | None, token: bytes | None,
        units: bool, conflate: float, prev_kv: bool, max_unit: int,
    ) -> None:
        self.rng, self.units, self.conflate, self.prev_kv, self.max_unit = rng, units, conflate, prev_kv, max_unit
        self.want_state, self.position, self.token = state, position, token
        self.newest: Position | None = None  # its history is the newest of the last cluster
        self.created = False
        self._there: Position | None = None
        self._behind = False  # only a unit can bridge the gap to the node's start
        self._partial: _Partial | None = None

    def begin(self) -> cache_pb2.CreateWatch:
        """Starts an attempt, and returns the request for the remaining updates."""
        self.created, self._there, self._behind, self._partial = False, None, False, None
        start, end = self.rng.wire()
        r = cache_pb2.CreateWatch(watch_id=1, key=start, range_end=end, prev_kv=self.prev_kv, allow_sync=self.units)
        if self.conflate:
            r.conflate.FromNanoseconds(int(self.conflate * 1e9))
        if self.want_state:
            r.state_first = True
        elif self.token is not None:
            r.resume_token = self.token
        elif self.position:
            r.start_revision = self.position.revision + 1
            r.cluster_id, r.lineage = self.position.cluster, self.position.lineage
        return r

    def start(self, c: cache_pb2.Created) -> Update | None:
        """Handles Created. Returns the first position of a watch that starts at the current revision."""
        there = Position(c.cluster_id, c.lineage, c.revision)
        if self.newest is None or self.newest.cluster != there.cluster or self.newest.lineage < there.lineage:
            self.newest = there
        if there.lineage != self.newest.lineage:
            raise Leave("the node has not caught up with the lineage", after=0.05)
        self._there, self.created = there, True
        if self.want_state:
            self._behind = True
            return None
        if self.position is None and self.token is None:
            self.position = there
            return Update(Kind.PROGRESS, there)
        if self.token is not None:
            self._behind = there.revision == 0
            if not self._behind:
                self.position, self.token = there, None
            return None
        assert self.position is not None
        if not self.position.same_history(there):
            if not self.units:
                raise LineageError("the position belongs to another history")
            self._behind = True
        elif there.revision > self.position.revision:
            if not self.units:
                raise _broken(f"starts after revision {there.revision}, requested {self.position.revision}")
            self._behind = True
        return None

    def step(self, r: cache_pb2.WatchResponse) -> Update | None:
        """Handles a response with events, a unit or progress, and returns the update that it completes."""
        detail = r.WhichOneof("detail")
        if not self.created and detail != "progress":
            raise _broken("data before Created")
        if detail == "sync":
            return self._sync(r.sync)
        if detail == "progress":
            return self._progress(r.progress.revision)
        return self._events(r) if r.events else None

    def _events(self, r: cache_pb2.WatchResponse) -> Update | None:
        p = self._partial
        if self._behind:
            raise _broken("events before a unit")
        if p and (p.kind is not Kind.BATCH or p.revision != r.revision):
            raise _broken(f"revision {r.revision} before {p.kind.value} at revision {p.revision} was complete")
        if self.position and r.revision <= self.position.revision:
            return None  # already received from another node
        p = self._partial = p or _Partial(Kind.BATCH, r.revision, [], [], [])
        for m in r.events:
            self._check(m.kv.key)
            p.events.append(_event(m))
        return None if r.fragment else self._complete()

    def _check(self, key: bytes) -> None:
        if not key or key not in self.rng:
            raise _broken(f"key {key!r} is outside the range")

    def _sync(self, s: cache_pb2.Sync) -> Update | None:
        kind = _UNITS.get(s.kind)
        if s.begin:
            self._begin_unit(s, kind)
        p = self._partial
        if p is None or p.kind is not kind or p.revision != s.revision:
            raise _broken("a part of a unit that has not begun")
        for m in s.kvs:
            self._check(m.key)
            p.kvs.append(key_value(m))
            p.size += _OVERHEAD + len(m.key) + len(m.value)
        for key in s.deleted:
            self._check(key)
            p.deleted.append(key)
            p.size += _OVERHEAD + len(key)
        if self.max_unit and p.size > self.max_unit:
            raise TooBigError(f"{p.kind.value} at revision {p.revision} has more than {self.max_unit} bytes")
        if not s.end:
            return None
        p.kvs.sort(key=lambda kv: kv.key)
        p.deleted.sort()
        keys = [kv.key for kv in p.kvs] + p.deleted
        if len(set(keys)) < len(keys):
            raise _broken("a key twice in a unit")
        old = self.position and self._comparable() and p.revision == self.position.revision
        done = self._complete()
        return None if old else done

    def _comparable(self) -> bool:
        return bool(self._there and self.position and self.token is None and self.position.same_history(self._there))

    def _begin_unit(self, s: cache_pb2.Sync, kind: Kind | None) -> None:
        changes = kind in (Kind.DELTA, Kind.CONFLATED)
        if self._partial and self._partial.kind is Kind.BATCH:
            raise _broken("a unit before a revision was complete")
        if kind is None or (kind is Kind.STATE) != self.want_state or (not self.units and kind is not Kind.STATE):
            raise _broken("a unit that was not requested")
        if kind is Kind.CONFLATED and not self.conflate:
            raise _broken("conflation that was not requested")
        if changes and not self._comparable():
            raise _broken(f"{kind.value} from one history to another")
        if self.position and self._comparable() and s.revision < self.position.revision:
            raise Leave("the node has not caught up", after=0.05)
        if changes and self.position and s.from_revision > self.position.revision:
            raise _broken(f"{kind.value} from revision {s.from_revision}, the watch is at {self.position.revision}")
        self._partial = _Partial(kind, s.revision, [], [], [])

    def _progress(self, revision: int) -> Update | None:
        if not self.created or self._behind or self._partial or not self.position or revision <= self.position.revision:
            return None
        self.position = Position(self.position.cluster, self.position.lineage, revision)
        return Update(Kind.PROGRESS, self.position)

    def _complete(self) -> Update:
        p, there = self._partial, self._there
        assert p is not None and there is not None
        self._partial, self._behind, self.want_state, self.token = None, False, False, None
        self.position = Position(there.cluster, there.lineage, p.revision)
        return Update(p.kind, self.position, p.events, p.kvs, p.deleted)
