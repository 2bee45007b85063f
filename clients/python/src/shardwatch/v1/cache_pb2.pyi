import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from shardwatch.v1 import kv_pb2 as _kv_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SyncKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SYNC_KIND_UNSPECIFIED: _ClassVar[SyncKind]
    SYNC_KIND_STATE: _ClassVar[SyncKind]
    SYNC_KIND_DELTA: _ClassVar[SyncKind]
    SYNC_KIND_RESYNC: _ClassVar[SyncKind]
    SYNC_KIND_CONFLATED: _ClassVar[SyncKind]

class EndReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    END_REASON_UNSPECIFIED: _ClassVar[EndReason]
    END_REASON_CANCELED: _ClassVar[EndReason]
    END_REASON_INVALID: _ClassVar[EndReason]
    END_REASON_COMPACTED: _ClassVar[EndReason]
    END_REASON_LINEAGE: _ClassVar[EndReason]
    END_REASON_DRAINING: _ClassVar[EndReason]
    END_REASON_LIMIT: _ClassVar[EndReason]
    END_REASON_UNAVAILABLE: _ClassVar[EndReason]
    END_REASON_UNAUTHENTICATED: _ClassVar[EndReason]
    END_REASON_DENIED: _ClassVar[EndReason]
    END_REASON_STALE: _ClassVar[EndReason]

class Consistency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONSISTENCY_UNSPECIFIED: _ClassVar[Consistency]
    CONSISTENCY_LINEARIZABLE: _ClassVar[Consistency]
    CONSISTENCY_SERIALIZABLE: _ClassVar[Consistency]
SYNC_KIND_UNSPECIFIED: SyncKind
SYNC_KIND_STATE: SyncKind
SYNC_KIND_DELTA: SyncKind
SYNC_KIND_RESYNC: SyncKind
SYNC_KIND_CONFLATED: SyncKind
END_REASON_UNSPECIFIED: EndReason
END_REASON_CANCELED: EndReason
END_REASON_INVALID: EndReason
END_REASON_COMPACTED: EndReason
END_REASON_LINEAGE: EndReason
END_REASON_DRAINING: EndReason
END_REASON_LIMIT: EndReason
END_REASON_UNAVAILABLE: EndReason
END_REASON_UNAUTHENTICATED: EndReason
END_REASON_DENIED: EndReason
END_REASON_STALE: EndReason
CONSISTENCY_UNSPECIFIED: Consistency
CONSISTENCY_LINEARIZABLE: Consistency
CONSISTENCY_SERIALIZABLE: Consistency

class WatchRequest(_message.Message):
    __slots__ = ("create", "cancel", "progress", "options")
    CREATE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    create: CreateWatch
    cancel: CancelWatch
    progress: RequestProgress
    options: StreamOptions
    def __init__(self, create: _Optional[_Union[CreateWatch, _Mapping]] = ..., cancel: _Optional[_Union[CancelWatch, _Mapping]] = ..., progress: _Optional[_Union[RequestProgress, _Mapping]] = ..., options: _Optional[_Union[StreamOptions, _Mapping]] = ...) -> None: ...

class StreamOptions(_message.Message):
    __slots__ = ("progress_interval", "allow_watch_ids", "progress_tokens")
    PROGRESS_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    ALLOW_WATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    progress_interval: _duration_pb2.Duration
    allow_watch_ids: bool
    progress_tokens: bool
    def __init__(self, progress_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., allow_watch_ids: bool = ..., progress_tokens: bool = ...) -> None: ...

class CreateWatch(_message.Message):
    __slots__ = ("watch_id", "key", "range_end", "start_revision", "resume_token", "state_first", "prev_kv", "lineage", "allow_sync", "conflate", "max_staleness", "cluster_id")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    START_REVISION_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIRST_FIELD_NUMBER: _ClassVar[int]
    PREV_KV_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SYNC_FIELD_NUMBER: _ClassVar[int]
    CONFLATE_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    key: bytes
    range_end: bytes
    start_revision: int
    resume_token: bytes
    state_first: bool
    prev_kv: bool
    lineage: int
    allow_sync: bool
    conflate: _duration_pb2.Duration
    max_staleness: _duration_pb2.Duration
    cluster_id: str
    def __init__(self, watch_id: _Optional[int] = ..., key: _Optional[bytes] = ..., range_end: _Optional[bytes] = ..., start_revision: _Optional[int] = ..., resume_token: _Optional[bytes] = ..., state_first: bool = ..., prev_kv: bool = ..., lineage: _Optional[int] = ..., allow_sync: bool = ..., conflate: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_staleness: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class CancelWatch(_message.Message):
    __slots__ = ("watch_id",)
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    def __init__(self, watch_id: _Optional[int] = ...) -> None: ...

class RequestProgress(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("watch_id", "watch_ids", "revision", "fragment", "created", "progress", "sync", "ended", "events")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    WATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FRAGMENT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    watch_ids: _containers.RepeatedScalarFieldContainer[int]
    revision: int
    fragment: bool
    created: Created
    progress: Progress
    sync: Sync
    ended: Ended
    events: _containers.RepeatedCompositeFieldContainer[_kv_pb2.Event]
    def __init__(self, watch_id: _Optional[int] = ..., watch_ids: _Optional[_Iterable[int]] = ..., revision: _Optional[int] = ..., fragment: bool = ..., created: _Optional[_Union[Created, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., sync: _Optional[_Union[Sync, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., events: _Optional[_Iterable[_Union[_kv_pb2.Event, _Mapping]]] = ...) -> None: ...

class Created(_message.Message):
    __slots__ = ("revision", "lineage", "resume_token", "node", "age", "cluster_id")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    revision: int
    lineage: int
    resume_token: bytes
    node: str
    age: _duration_pb2.Duration
    cluster_id: str
    def __init__(self, revision: _Optional[int] = ..., lineage: _Optional[int] = ..., resume_token: _Optional[bytes] = ..., node: _Optional[str] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cluster_id: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("revision", "watch_ids", "held_back_by_shard", "age", "resume_tokens")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    WATCH_IDS_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_BY_SHARD_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKENS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    watch_ids: _containers.RepeatedScalarFieldContainer[int]
    held_back_by_shard: int
    age: _duration_pb2.Duration
    resume_tokens: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, revision: _Optional[int] = ..., watch_ids: _Optional[_Iterable[int]] = ..., held_back_by_shard: _Optional[int] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., resume_tokens: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Sync(_message.Message):
    __slots__ = ("kind", "begin", "end", "revision", "from_revision", "kvs", "deleted")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FROM_REVISION_FIELD_NUMBER: _ClassVar[int]
    KVS_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    kind: SyncKind
    begin: bool
    end: bool
    revision: int
    from_revision: int
    kvs: _containers.RepeatedCompositeFieldContainer[_kv_pb2.KeyValue]
    deleted: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, kind: _Optional[_Union[SyncKind, str]] = ..., begin: bool = ..., end: bool = ..., revision: _Optional[int] = ..., from_revision: _Optional[int] = ..., kvs: _Optional[_Iterable[_Union[_kv_pb2.KeyValue, _Mapping]]] = ..., deleted: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("reason", "message", "floor", "resume_revision", "resume_token", "endpoints", "retry_after", "foreign")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    RESUME_REVISION_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    reason: EndReason
    message: str
    floor: int
    resume_revision: int
    resume_token: bytes
    endpoints: _containers.RepeatedScalarFieldContainer[str]
    retry_after: _duration_pb2.Duration
    foreign: str
    def __init__(self, reason: _Optional[_Union[EndReason, str]] = ..., message: _Optional[str] = ..., floor: _Optional[int] = ..., resume_revision: _Optional[int] = ..., resume_token: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[str]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., foreign: _Optional[str] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("key", "range_end", "revision", "consistency", "max_staleness", "limit", "page_token", "keys_only", "count", "count_only", "changed_since", "cluster_id", "lineage")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    KEYS_ONLY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    COUNT_ONLY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_SINCE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    range_end: bytes
    revision: int
    consistency: Consistency
    max_staleness: _duration_pb2.Duration
    limit: int
    page_token: bytes
    keys_only: bool
    count: bool
    count_only: bool
    changed_since: int
    cluster_id: str
    lineage: int
    def __init__(self, key: _Optional[bytes] = ..., range_end: _Optional[bytes] = ..., revision: _Optional[int] = ..., consistency: _Optional[_Union[Consistency, str]] = ..., max_staleness: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limit: _Optional[int] = ..., page_token: _Optional[bytes] = ..., keys_only: bool = ..., count: bool = ..., count_only: bool = ..., changed_since: _Optional[int] = ..., cluster_id: _Optional[str] = ..., lineage: _Optional[int] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("revision", "lineage", "next_page_token", "count", "age", "cluster_id", "kvs", "deleted")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    KVS_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    revision: int
    lineage: int
    next_page_token: bytes
    count: int
    age: _duration_pb2.Duration
    cluster_id: str
    kvs: _containers.RepeatedCompositeFieldContainer[_kv_pb2.KeyValue]
    deleted: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, revision: _Optional[int] = ..., lineage: _Optional[int] = ..., next_page_token: _Optional[bytes] = ..., count: _Optional[int] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cluster_id: _Optional[str] = ..., kvs: _Optional[_Iterable[_Union[_kv_pb2.KeyValue, _Mapping]]] = ..., deleted: _Optional[_Iterable[bytes]] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("key", "revision", "consistency", "max_staleness", "cluster_id", "lineage")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    revision: int
    consistency: Consistency
    max_staleness: _duration_pb2.Duration
    cluster_id: str
    lineage: int
    def __init__(self, key: _Optional[bytes] = ..., revision: _Optional[int] = ..., consistency: _Optional[_Union[Consistency, str]] = ..., max_staleness: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cluster_id: _Optional[str] = ..., lineage: _Optional[int] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("revision", "lineage", "kv", "age", "cluster_id")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    KV_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    revision: int
    lineage: int
    kv: _kv_pb2.KeyValue
    age: _duration_pb2.Duration
    cluster_id: str
    def __init__(self, revision: _Optional[int] = ..., lineage: _Optional[int] = ..., kv: _Optional[_Union[_kv_pb2.KeyValue, _Mapping]] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cluster_id: _Optional[str] = ...) -> None: ...
