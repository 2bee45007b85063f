"""Ranges, positions, keys and updates."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field


def _bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


@dataclass(frozen=True)
class Range:
    """The keys k with start <= k < end; an empty end means the end of the key space."""

    start: bytes
    end: bytes

    def __contains__(self, key: bytes) -> bool:
        return self.start <= key and (not self.end or key < self.end)

    def wire(self) -> tuple[bytes, bytes]:
        """Returns key and range_end of a request."""
        return self.start or b"\0", self.end or b"\0"


def key(name: str | bytes) -> Range:
    """Returns the range that holds one key."""
    start = _bytes(name)
    return Range(start, start + b"\0")


def prefix(name: str | bytes) -> Range:
    """Returns the range of all keys that begin with name."""
    start = _bytes(name)
    head = start.rstrip(b"\xff")
    return Range(start, head[:-1] + bytes([head[-1] + 1]) if head else b"")


def between(start: str | bytes, end: str | bytes) -> Range:
    """Returns the range of the keys k with start <= k < end."""
    return Range(_bytes(start), _bytes(end))


@dataclass(frozen=True)
class Position:
    """A revision with the history it belongs to: the cluster and its lineage."""

    cluster: str
    lineage: int
    revision: int

    def same_history(self, other: Position) -> bool:
        return (self.cluster, self.lineage) == (other.cluster, other.lineage)

    def dumps(self) -> str:
        """Returns the position as text, for loads."""
        return json.dumps([self.cluster, self.lineage, self.revision])

    @staticmethod
    def loads(text: str) -> Position:
        cluster, lineage, revision = json.loads(text)
        return Position(str(cluster), int(lineage), int(revision))


@dataclass(frozen=True)
class KeyValue:
    """One key at one revision."""

    key: bytes
    value: bytes
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0


@dataclass(frozen=True)
class Event:
    """One change of one key. For a deleted key, kv has only key and mod_revision."""

    deleted: bool
    kv: KeyValue
    prev: KeyValue | None = None


class Kind(str, enum.Enum):
    """The kind of an update."""

    BATCH = "batch"  # events: all changes of the range at the position's revision
    STATE = "state"  # kvs: all keys of the range; first, if requested
    DELTA = "delta"  # kvs and deleted: the changes since the last update
    RESYNC = "resync"  # kvs: all keys of the range, replacing all known ones
    CONFLATED = "conflated"  # as DELTA, because conflation was requested
    PROGRESS = "progress"  # only a position; only if requested


@dataclass(frozen=True)
class Update:
    """One step of a watch: always a whole revision or a whole unit."""

    kind: Kind
    position: Position
    events: list[Event] = field(default_factory=list)
    kvs: list[KeyValue] = field(default_factory=list)
    deleted: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class Listing:
    """The keys of a range at one revision."""

    position: Position
    kvs: list[KeyValue]
    next_page: bytes = b""


@dataclass(frozen=True)
class Got:
    """The result of a get; kv is None if the key does not exist."""

    position: Position
    kv: KeyValue | None
