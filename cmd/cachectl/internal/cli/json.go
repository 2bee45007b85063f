package cli

import (
	"unicode/utf8"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
)

// The JSON forms. Their field names are stable.

// KeyValueJSON is a key/value. Key and value are text if they are valid UTF-8,
// otherwise base64 in the base64 fields.
type KeyValueJSON struct {
	Key            *string `json:"key,omitempty"`
	KeyBase64      []byte  `json:"key_base64,omitempty"`
	Value          *string `json:"value,omitempty"`
	ValueBase64    []byte  `json:"value_base64,omitempty"`
	CreateRevision int64   `json:"create_revision,omitempty"`
	ModRevision    int64   `json:"mod_revision,omitempty"`
	Version        int64   `json:"version,omitempty"`
	Lease          int64   `json:"lease,omitempty"`
}

// Text returns b as text, or as bytes for a base64 field if it is not valid UTF-8.
func Text(b []byte) (*string, []byte) {
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	return nil, b
}

// KeyValueOf returns the form of a key/value; value: with its value.
func KeyValueOf(kv client.KeyValue, value bool) KeyValueJSON {
	out := KeyValueJSON{CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
	out.Key, out.KeyBase64 = Text(kv.Key)
	if value {
		out.Value, out.ValueBase64 = Text(kv.Value)
	}
	return out
}

// EventJSON is a line of watch: PUT, DELETE, or STATE for a key of the state. In
// a unit, a DELETE has the revision of the unit, and no mod_revision.
type EventJSON struct {
	Type     string `json:"type"`
	Revision int64  `json:"revision"`
	KeyValueJSON
	Prev *KeyValueJSON `json:"prev,omitempty"`
}

// PositionJSON is a revision with the history it belongs to.
type PositionJSON struct {
	Revision  int64  `json:"revision"`
	ClusterID string `json:"cluster_id,omitempty"`
	Lineage   uint64 `json:"lineage,omitempty"`
}

// PositionOf is the form of a position.
func PositionOf(p client.Position) PositionJSON {
	return PositionJSON{p.Revision, p.Cluster, p.Lineage}
}

// UnitJSON is the first line of a unit, BEGIN, or its last one, END. Unit is
// state, delta, resync or conflated.
type UnitJSON struct {
	Type     string `json:"type"`
	Revision int64  `json:"revision"`
	Unit     string `json:"unit"`
	// From is the revision after which the keys have changed, in the BEGIN of a
	// delta or conflated unit.
	From int64 `json:"from_revision,omitempty"`
	// A BEGIN has the history that revisions belong to, and Keys, the number of
	// lines between it and the END.
	ClusterID string `json:"cluster_id,omitempty"`
	Lineage   uint64 `json:"lineage,omitempty"`
	Keys      *int   `json:"keys,omitempty"`
}

// MemberJSON is a node as gossip sees it.
type MemberJSON struct {
	Name          string `json:"name"`
	UUID          string `json:"uuid,omitempty"`
	State         string `json:"state"`
	ClientAddress string `json:"client_address"`
	PeerAddress   string `json:"peer_address,omitempty"`
	HTTPAddress   string `json:"http_address,omitempty"`
	Voter         bool   `json:"voter"`
	Leader        bool   `json:"leader"`
	Draining      bool   `json:"draining"`
	Zone          string `json:"zone,omitempty"`
	Version       string `json:"version,omitempty"`
	FeatureLevel  int    `json:"feature_level,omitempty"`
	Weight        int    `json:"weight,omitempty"`
}

// MemberOf is the form of a member.
func MemberOf(m admin.Member) MemberJSON {
	return MemberJSON{
		Name: m.Name, UUID: m.UUID, State: m.State.String(),
		ClientAddress: m.ClientAddress, PeerAddress: m.PeerAddress, HTTPAddress: m.HTTPAddress,
		Voter: m.Voter, Leader: m.Leader, Draining: m.Draining, Zone: m.Zone, Version: m.Version, FeatureLevel: m.FeatureLevel, Weight: m.Weight,
	}
}

// ReplicaJSON is a replica or relay of a shard on a node.
type ReplicaJSON struct {
	Node              string  `json:"node"`
	Ready             bool    `json:"ready"`
	Source            string  `json:"source"`
	SourceNode        string  `json:"source_node,omitempty"`
	Progress          int64   `json:"progress"`
	Lag               int64   `json:"lag_revisions"`
	AgeSeconds        float64 `json:"age_seconds"`
	Keys              int64   `json:"keys"`
	StateBytes        int64   `json:"state_bytes"`
	Roots             int64   `json:"roots"`
	RootsBytes        int64   `json:"roots_bytes"`
	Floor             int64   `json:"floor"`
	WindowRevisions   int64   `json:"window_revisions"`
	WindowBatches     int64   `json:"window_batches"`
	WindowBytes       int64   `json:"window_bytes"`
	WindowSpanSeconds float64 `json:"window_span_seconds"`
	DeltaFloor        int64   `json:"delta_floor"`
	DeltaRevisions    int64   `json:"delta_revisions"`
	Tombstones        int64   `json:"tombstones"`
	TombstoneBytes    int64   `json:"tombstone_bytes"`
	Watchers          int64   `json:"watchers"`
	Relay             bool    `json:"relay,omitempty"`
}

// ShardJSON is a shard with its replicas.
type ShardJSON struct {
	ID uint64 `json:"id"`
	// Start and End are keys, quoted as in Go if they are not text; an empty
	// End is the end of the key space.
	Start          string        `json:"start"`
	End            string        `json:"end"`
	Epoch          uint64        `json:"epoch"`
	Owner          string        `json:"owner"`
	Replicas       []ReplicaJSON `json:"replicas"`
	Pins           []string      `json:"pins,omitempty"`
	WantedReplicas int           `json:"wanted_replicas,omitempty"`
	Joins          bool          `json:"joins,omitempty"` // about to be merged
}

// FailureJSON is a node that did not answer.
type FailureJSON struct {
	Node  string `json:"node"`
	Error string `json:"error"`
}
