import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemberState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMBER_STATE_UNSPECIFIED: _ClassVar[MemberState]
    MEMBER_STATE_ALIVE: _ClassVar[MemberState]
    MEMBER_STATE_SUSPECT: _ClassVar[MemberState]
    MEMBER_STATE_DEAD: _ClassVar[MemberState]
    MEMBER_STATE_LEFT: _ClassVar[MemberState]

class ReplicaSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICA_SOURCE_UNSPECIFIED: _ClassVar[ReplicaSource]
    REPLICA_SOURCE_ETCD: _ClassVar[ReplicaSource]
    REPLICA_SOURCE_PEER: _ClassVar[ReplicaSource]
MEMBER_STATE_UNSPECIFIED: MemberState
MEMBER_STATE_ALIVE: MemberState
MEMBER_STATE_SUSPECT: MemberState
MEMBER_STATE_DEAD: MemberState
MEMBER_STATE_LEFT: MemberState
REPLICA_SOURCE_UNSPECIFIED: ReplicaSource
REPLICA_SOURCE_ETCD: ReplicaSource
REPLICA_SOURCE_PEER: ReplicaSource

class ShardMap(_message.Message):
    __slots__ = ("lineage", "version", "cluster_id", "shards", "origin", "drained", "replicas", "feature_level", "generation")
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    lineage: int
    version: int
    cluster_id: str
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    origin: LineageOrigin
    drained: _containers.RepeatedScalarFieldContainer[str]
    replicas: int
    feature_level: int
    generation: int
    def __init__(self, lineage: _Optional[int] = ..., version: _Optional[int] = ..., cluster_id: _Optional[str] = ..., shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., origin: _Optional[_Union[LineageOrigin, _Mapping]] = ..., drained: _Optional[_Iterable[str]] = ..., replicas: _Optional[int] = ..., feature_level: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class LineageOrigin(_message.Message):
    __slots__ = ("cause", "reason", "node", "at", "revision_before", "revision")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    REVISION_BEFORE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    cause: str
    reason: str
    node: str
    at: _timestamp_pb2.Timestamp
    revision_before: int
    revision: int
    def __init__(self, cause: _Optional[str] = ..., reason: _Optional[str] = ..., node: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revision_before: _Optional[int] = ..., revision: _Optional[int] = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("id", "key", "range_end", "epoch", "replicas", "pins", "wanted_replicas", "joins")
    ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    WANTED_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    id: int
    key: bytes
    range_end: bytes
    epoch: int
    replicas: _containers.RepeatedScalarFieldContainer[str]
    pins: _containers.RepeatedScalarFieldContainer[str]
    wanted_replicas: int
    joins: bool
    def __init__(self, id: _Optional[int] = ..., key: _Optional[bytes] = ..., range_end: _Optional[bytes] = ..., epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[str]] = ..., pins: _Optional[_Iterable[str]] = ..., wanted_replicas: _Optional[int] = ..., joins: bool = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "uuid", "client_address", "peer_address", "http_address", "state", "voter", "leader", "draining", "zone", "version", "feature_level", "weight")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    name: str
    uuid: str
    client_address: str
    peer_address: str
    http_address: str
    state: MemberState
    voter: bool
    leader: bool
    draining: bool
    zone: str
    version: str
    feature_level: int
    weight: int
    def __init__(self, name: _Optional[str] = ..., uuid: _Optional[str] = ..., client_address: _Optional[str] = ..., peer_address: _Optional[str] = ..., http_address: _Optional[str] = ..., state: _Optional[_Union[MemberState, str]] = ..., voter: bool = ..., leader: bool = ..., draining: bool = ..., zone: _Optional[str] = ..., version: _Optional[str] = ..., feature_level: _Optional[int] = ..., weight: _Optional[int] = ...) -> None: ...

class KeyRange(_message.Message):
    __slots__ = ("key", "range_end")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_END_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    range_end: bytes
    def __init__(self, key: _Optional[bytes] = ..., range_end: _Optional[bytes] = ...) -> None: ...

class WatchShardMapRequest(_message.Message):
    __slots__ = ("known_version", "cluster_id", "known_members", "ranges", "only_ranges", "new_ranges")
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    KNOWN_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ONLY_RANGES_FIELD_NUMBER: _ClassVar[int]
    NEW_RANGES_FIELD_NUMBER: _ClassVar[int]
    known_version: int
    cluster_id: str
    known_members: int
    ranges: _containers.RepeatedCompositeFieldContainer[KeyRange]
    only_ranges: bool
    new_ranges: _containers.RepeatedCompositeFieldContainer[KeyRange]
    def __init__(self, known_version: _Optional[int] = ..., cluster_id: _Optional[str] = ..., known_members: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ..., only_ranges: bool = ..., new_ranges: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ...) -> None: ...

class WatchShardMapResponse(_message.Message):
    __slots__ = ("map", "members", "from_version", "removed_shards", "all_shards", "members_version", "all_members", "removed_members")
    MAP_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    REMOVED_SHARDS_FIELD_NUMBER: _ClassVar[int]
    ALL_SHARDS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_VERSION_FIELD_NUMBER: _ClassVar[int]
    ALL_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_MEMBERS_FIELD_NUMBER: _ClassVar[int]
    map: ShardMap
    members: _containers.RepeatedCompositeFieldContainer[Member]
    from_version: int
    removed_shards: _containers.RepeatedScalarFieldContainer[int]
    all_shards: bool
    members_version: int
    all_members: bool
    removed_members: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, map: _Optional[_Union[ShardMap, _Mapping]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., from_version: _Optional[int] = ..., removed_shards: _Optional[_Iterable[int]] = ..., all_shards: bool = ..., members_version: _Optional[int] = ..., all_members: bool = ..., removed_members: _Optional[_Iterable[str]] = ...) -> None: ...

class ListMembersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListMembersResponse(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("self", "cluster_id", "lineage", "map_version", "etcd_cluster_id", "etcd_revision", "etcd_age", "not_ready", "watches", "connections", "uptime", "replicas", "refusal", "raft_index", "voters", "raft_leader", "overruled_flags", "new_levels")
    SELF_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    ETCD_CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ETCD_REVISION_FIELD_NUMBER: _ClassVar[int]
    ETCD_AGE_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_FIELD_NUMBER: _ClassVar[int]
    WATCHES_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    RAFT_INDEX_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    RAFT_LEADER_FIELD_NUMBER: _ClassVar[int]
    OVERRULED_FLAGS_FIELD_NUMBER: _ClassVar[int]
    NEW_LEVELS_FIELD_NUMBER: _ClassVar[int]
    self: Member
    cluster_id: str
    lineage: int
    map_version: int
    etcd_cluster_id: str
    etcd_revision: int
    etcd_age: _duration_pb2.Duration
    not_ready: _containers.RepeatedScalarFieldContainer[str]
    watches: int
    connections: int
    uptime: _duration_pb2.Duration
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    refusal: str
    raft_index: int
    voters: _containers.RepeatedScalarFieldContainer[str]
    raft_leader: str
    overruled_flags: _containers.RepeatedScalarFieldContainer[str]
    new_levels: _containers.RepeatedCompositeFieldContainer[FeatureLevel]
    def __init__(self_, self: _Optional[_Union[Member, _Mapping]] = ..., cluster_id: _Optional[str] = ..., lineage: _Optional[int] = ..., map_version: _Optional[int] = ..., etcd_cluster_id: _Optional[str] = ..., etcd_revision: _Optional[int] = ..., etcd_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., not_ready: _Optional[_Iterable[str]] = ..., watches: _Optional[int] = ..., connections: _Optional[int] = ..., uptime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., refusal: _Optional[str] = ..., raft_index: _Optional[int] = ..., voters: _Optional[_Iterable[str]] = ..., raft_leader: _Optional[str] = ..., overruled_flags: _Optional[_Iterable[str]] = ..., new_levels: _Optional[_Iterable[_Union[FeatureLevel, _Mapping]]] = ...) -> None: ...

class FeatureLevel(_message.Message):
    __slots__ = ("level", "adds")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    ADDS_FIELD_NUMBER: _ClassVar[int]
    level: int
    adds: str
    def __init__(self, level: _Optional[int] = ..., adds: _Optional[str] = ...) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("shard_id", "node", "ready", "source", "source_node", "progress", "floor", "age", "keys", "state_bytes", "window_batches", "window_bytes", "window_span", "watchers", "relay", "delta_floor", "tombstones", "tombstone_bytes", "roots", "roots_bytes", "events", "quarantined", "verified_age")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_NODE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    AGE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BATCHES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_SPAN_FIELD_NUMBER: _ClassVar[int]
    WATCHERS_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    DELTA_FLOOR_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    ROOTS_BYTES_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_AGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    node: str
    ready: bool
    source: ReplicaSource
    source_node: str
    progress: int
    floor: int
    age: _duration_pb2.Duration
    keys: int
    state_bytes: int
    window_batches: int
    window_bytes: int
    window_span: _duration_pb2.Duration
    watchers: int
    relay: bool
    delta_floor: int
    tombstones: int
    tombstone_bytes: int
    roots: int
    roots_bytes: int
    events: int
    quarantined: bool
    verified_age: _duration_pb2.Duration
    def __init__(self, shard_id: _Optional[int] = ..., node: _Optional[str] = ..., ready: bool = ..., source: _Optional[_Union[ReplicaSource, str]] = ..., source_node: _Optional[str] = ..., progress: _Optional[int] = ..., floor: _Optional[int] = ..., age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., keys: _Optional[int] = ..., state_bytes: _Optional[int] = ..., window_batches: _Optional[int] = ..., window_bytes: _Optional[int] = ..., window_span: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., watchers: _Optional[int] = ..., relay: bool = ..., delta_floor: _Optional[int] = ..., tombstones: _Optional[int] = ..., tombstone_bytes: _Optional[int] = ..., roots: _Optional[int] = ..., roots_bytes: _Optional[int] = ..., events: _Optional[int] = ..., quarantined: bool = ..., verified_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
