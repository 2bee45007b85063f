"""A copy of a range, kept up to date."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from .client import Client
from .types import Kind, KeyValue, Position, Range, Update


@dataclass(frozen=True)
class Change:
    """The change of a key: before is None if it is new, after if it was deleted."""

    key: bytes
    before: KeyValue | None
    after: KeyValue | None


class Mirror:
    """Holds a range's keys. changes applies the updates, and yields the differences:

        mirror = Mirror(client, prefix("/app/"))
        async for changes in mirror.changes():
            ...  # mirror.data has the state after them
    """

    def __init__(self, client: Client, rng: Range) -> None:
        self._client, self._rng = client, rng
        self.data: dict[bytes, KeyValue] = {}
        self.position: Position | None = None  # None: nothing has arrived yet

    async def changes(self) -> AsyncIterator[list[Change]]:
        """Yields the differences of each update. The first list has all keys, and may be empty."""
        updates = self._client.watch(self._rng, position=self.position, state=self.position is None)
        async for update in updates:
            changes = self._apply(update)
            self.position = update.position
            yield changes

    def _apply(self, u: Update) -> list[Change]:
        after: dict[bytes, KeyValue | None] = {}
        if u.kind in (Kind.STATE, Kind.RESYNC):
            after.update(dict.fromkeys(self.data))
        after.update((key, None) for key in u.deleted)
        after.update((kv.key, kv) for kv in u.kvs)
        after.update((e.kv.key, None if e.deleted else e.kv) for e in u.events)
        changes = []
        for key, now in sorted(after.items()):
            before = self.data.get(key)
            if before == now:
                continue
            changes.append(Change(key, before, now))
            if now:
                self.data[key] = now
            else:
                del self.data[key]
        return changes
