"""Errors for the application, and the meaning of a call's error for the next attempt."""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc
from google.rpc import error_details_pb2, status_pb2


class Error(Exception):
    """Any error of this package."""

    word = "error"


class InvalidError(Error):
    """A request was invalid. A retry does not help."""

    word = "invalid"


class DeniedError(Error):
    """The caller may not read the range."""

    word = "denied"


class UnauthenticatedError(Error):
    """The nodes do not accept the credentials."""

    word = "unauthenticated"


class CompactedError(Error):
    """The revision is gone; floor is the oldest available one, 0 if unknown."""

    word = "compacted"

    def __init__(self, message: str, floor: int = 0) -> None:
        super().__init__(message)
        self.floor = floor


class FutureRevisionError(Error):
    """The revision does not exist yet."""

    word = "future"


class LineageError(Error):
    """The position belongs to another history: list again, or watch with state=True."""

    word = "lineage"


class UnavailableError(Error):
    """No node answered in time."""

    word = "unavailable"


class TooBigError(Error):
    """A unit is larger than max_unit."""

    word = "too big"


class Leave(Exception):
    """Makes the client leave a node, for another one or for a while. Not for applications."""

    def __init__(
        self, why: str, *, penalise: float | None = None, hints: list[str] | None = None, after: float = 0, stay: bool = False,
        error: Error | None = None,
    ) -> None:
        super().__init__(why)
        self.penalise = penalise  # seconds at least; None: no penalty
        self.hints = hints or []
        self.after = after
        self.stay = stay  # do not avoid the node itself
        self.error = error  # for the application, if a read gives up; None: no node answered


class Silent(Leave):
    """A node did not answer in time."""

    def __init__(self) -> None:
        super().__init__("node is silent", penalise=0)


@dataclass
class _Details:
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    after: float = 0


def _details(err: grpc.aio.AioRpcError) -> _Details:
    out = _Details()
    for name, value in err.trailing_metadata() or ():
        if name != "grpc-status-details-bin":
            continue
        status = status_pb2.Status.FromString(value if isinstance(value, bytes) else value.encode("latin-1"))
        for one in status.details:
            if one.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
                info = error_details_pb2.ErrorInfo.FromString(one.value)
                if info.domain == "shardwatch.dev":
                    out.reason, out.metadata = info.reason, dict(info.metadata)
            elif one.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
                delay = error_details_pb2.RetryInfo.FromString(one.value).retry_delay
                out.after = delay.seconds + delay.nanos / 1e9
    return out


def judge(err: grpc.aio.AioRpcError, may_renew: bool) -> Error | Leave:
    """Returns the error for the application, or the next step (docs/protocol.md, section 10)."""
    details, text = _details(err), err.details() or err.code().name
    code, reason = err.code(), details.reason
    if code is grpc.StatusCode.UNAVAILABLE:
        hints = [a.strip() for a in details.metadata.get("endpoints", "").split(",") if a.strip()]
        return Leave(text, penalise=0 if reason in ("", "DRAINING") else None, hints=hints, after=details.after)
    if code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL):
        return Leave(text, penalise=0)
    if code is grpc.StatusCode.CANCELLED:
        return Leave(text)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and (details.after or reason == "LIMIT"):
        return Leave(text, after=details.after)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        refused = UnauthenticatedError(text)
        return Leave(text, stay=True, after=1, error=refused) if may_renew else refused
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return DeniedError(text)
    if code is grpc.StatusCode.OUT_OF_RANGE and reason == "FUTURE_REVISION":
        return FutureRevisionError(text)
    if code is grpc.StatusCode.OUT_OF_RANGE:
        return CompactedError(text, int(details.metadata.get("floor", "0")))
    if reason == "WRONG_LINEAGE":
        return LineageError(text)
    return InvalidError(text)
