"""Watches and reads etcd keys through a Shardwatch cluster.

    async with Client(["127.0.0.1:7400"]) as client:
        async for update in client.watch(prefix("/demo/"), state=True):
            ...

Read Client.watch first, and Mirror for a copy of a range.
"""

from .client import Client
from .errors import (
    CompactedError, DeniedError, Error, FutureRevisionError, InvalidError, LineageError, TooBigError, UnauthenticatedError,
    UnavailableError,
)
from .mirror import Change, Mirror
from .types import Event, Got, KeyValue, Kind, Listing, Position, Range, Update, between, key, prefix

__all__ = [
    "Change", "Client", "CompactedError", "DeniedError", "Error", "Event", "FutureRevisionError", "Got", "InvalidError", "KeyValue",
    "Kind", "LineageError", "Listing", "Mirror", "Position", "Range", "TooBigError", "UnauthenticatedError", "UnavailableError",
    "Update", "between", "key", "prefix",
]
