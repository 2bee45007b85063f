package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Level is the newest feature level that this software writes and understands. It grows when a
// command or a map gains a meaning that older versions would miss. Commands and maps are written
// at the lowest level that can express them, so that nodes of different versions work together
// while no new feature is used. It is the first byte of every encoding; 0 is never used.
const Level = LevelSettings

// Feature levels. Merges and drains need LevelHomes, changes for load need
// LevelWatches. From LevelSettings on, a level is used once it is finalized:
// see [Map.FinalLevel].
const (
	levelFirst    = 1
	levelLineage  = 2 // maps with an origin, and Renew
	LevelHomes    = 3 // homes and drained nodes; Merge, Rehome, Drain, and a Split whose first part stays
	LevelWatches  = 4 // homes that record whether a cut divides watches; a Split with Watches
	LevelSettings = 5 // Configure; maps with a finalized level, a generation or a number of owners, Finalize, and placement by the weights of nodes
)

// JSON follows the level, with keys as bytes: etcd's keys need not be UTF-8, and JSON strings
// would change them. Unknown fields are refused, because the writer must have had newer software.

type wireRange struct {
	Start []byte `json:"start,omitempty"`
	End   []byte `json:"end,omitempty"`
}

type wireSpec struct {
	Ranges   []wireRange `json:"ranges"`
	Shards   int         `json:"shards"`
	Replicas int         `json:"replicas"`
	Owners   int         `json:"owners,omitempty"`
}

type wireShard struct {
	ID       ID        `json:"id"`
	Range    wireRange `json:"range"`
	Epoch    uint64    `json:"epoch"`
	Replicas []NodeID  `json:"replicas,omitempty"`
	Home     wireHome  `json:"home,omitzero"`
}

type wireHome struct {
	Seat     ID       `json:"seat,omitempty"`
	Pins     []NodeID `json:"pins,omitempty"`
	Replicas int      `json:"replicas,omitempty"`
	Parting  int      `json:"parting,omitempty"`
	Whole    int      `json:"whole,omitempty"`
}

// IsZero makes omitzero omit empty values.
func (h wireHome) IsZero() bool { return Home(h).IsZero() }

type wireMap struct {
	ClusterID     string      `json:"cluster_id"`
	EtcdClusterID uint64      `json:"etcd_cluster_id"`
	Lineage       uint64      `json:"lineage"`
	Origin        *wireOrigin `json:"origin,omitempty"`
	Generation    uint64      `json:"generation,omitempty"`
	Version       uint64      `json:"version"`
	NextID        ID          `json:"next_id"`
	Spec          wireSpec    `json:"spec"`
	Shards        []wireShard `json:"shards"`
	Drained       []NodeID    `json:"drained,omitempty"`
	Finalized     int         `json:"finalized,omitempty"`
}

type wireOrigin struct {
	Cause  kv.Cause  `json:"cause"`
	Reason string    `json:"reason,omitempty"`
	Node   NodeID    `json:"node,omitempty"`
	At     time.Time `json:"at,omitzero"`
	Was    kv.Mark   `json:"was,omitzero"`
	Is     kv.Mark   `json:"is,omitzero"`
}

type wireCommand struct {
	RequestID string         `json:"request_id"`
	IfVersion uint64         `json:"if_version"`
	Found     *wireFound     `json:"found,omitempty"`
	Assign    *wireAssign    `json:"assign,omitempty"`
	Split     *wireSplit     `json:"split,omitempty"`
	Merge     *wireMerge     `json:"merge,omitempty"`
	Rehome    *wireRehome    `json:"rehome,omitempty"`
	Drain     *wireDrain     `json:"drain,omitempty"`
	Renew     *wireRenew     `json:"renew,omitempty"`
	Configure *wireConfigure `json:"configure,omitempty"`
	Finalize  *wireFinalize  `json:"finalize,omitempty"`
}

type wireFound struct {
	ClusterID     string     `json:"cluster_id"`
	EtcdClusterID uint64     `json:"etcd_cluster_id"`
	Spec          wireSpec   `json:"spec"`
	Cuts          [][]byte   `json:"cuts,omitempty"`
	Replicas      [][]NodeID `json:"replicas,omitempty"`
	Finalized     int        `json:"finalized,omitempty"`
}

type wireAssign struct {
	Moves []wireMove `json:"moves"`
}

type wireMove struct {
	Shard    ID       `json:"shard"`
	Replicas []NodeID `json:"replicas"`
}

type wireSplit struct {
	Shard   ID       `json:"shard"`
	At      [][]byte `json:"at"`
	Stay    bool     `json:"stay,omitempty"`
	Watches int      `json:"watches,omitempty"`
}

type wireMerge struct {
	Shards   []ID     `json:"shards"`
	Replicas []NodeID `json:"replicas"`
}

type wireRehome struct {
	Homes []wireShardHome `json:"homes"`
}

type wireShardHome struct {
	Shard ID       `json:"shard"`
	Home  wireHome `json:"home,omitzero"`
}

type wireDrain struct {
	Nodes []NodeID `json:"nodes"`
	Undo  bool     `json:"undo,omitempty"`
}

type wireRenew struct {
	Lineage       uint64     `json:"lineage"`
	EtcdClusterID uint64     `json:"etcd_cluster_id"`
	Origin        wireOrigin `json:"origin"`
}

type wireConfigure struct {
	Replicas int         `json:"replicas"`
	Owners   int         `json:"owners,omitempty"`
	Ranges   []wireRange `json:"ranges"`
}

type wireFinalize struct {
	Level int `json:"level"`
}

// EncodeMap returns the stable encoding of the map, used in the map file, raft's snapshots and the
// streams between nodes. The encodings of equal maps are equal.
func EncodeMap(m *Map) ([]byte, error) {
	return encode(byte(m.Level()), toWireMap(m)) //nolint:gosec // few
}

func toWireMap(m *Map) wireMap {
	w := wireMap{
		ClusterID: m.ClusterID, EtcdClusterID: m.EtcdClusterID, Lineage: m.Lineage,
		Generation: m.Generation, Version: m.Version, NextID: m.NextID, Spec: toWireSpec(m.Spec), Shards: make([]wireShard, 0, len(m.Shards)),
		Drained: m.Drained, Finalized: m.Finalized,
	}
	for i := range m.Shards {
		s := &m.Shards[i]
		w.Shards = append(w.Shards, wireShard{ID: s.ID, Range: toWireRange(s.Range), Epoch: s.Epoch, Replicas: s.Replicas, Home: wireHome(s.Home)})
	}
	if m.Origin != nil {
		origin := wireOrigin(*m.Origin)
		w.Origin = &origin
	}
	return w
}

// DecodeMap decodes and validates the output of EncodeMap. It fails with
// [ErrNewer] or [ErrMalformed].
func DecodeMap(b []byte) (*Map, error) {
	var w wireMap
	if err := decode(b, &w); err != nil {
		return nil, fmt.Errorf("decode shard map: %w", err)
	}
	m := fromWireMap(w)
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("decode shard map: %w: %w", ErrMalformed, err)
	}
	return m, nil
}

func fromWireMap(w wireMap) *Map {
	m := &Map{
		ClusterID: w.ClusterID, EtcdClusterID: w.EtcdClusterID, Lineage: w.Lineage,
		Generation: w.Generation, Version: w.Version, NextID: w.NextID, Spec: fromWireSpec(w.Spec), Drained: w.Drained, Finalized: w.Finalized,
	}
	for _, s := range w.Shards {
		m.Shards = append(m.Shards, Shard{ID: s.ID, Range: fromWireRange(s.Range), Epoch: s.Epoch, Replicas: s.Replicas, Home: Home(s.Home)})
	}
	if w.Origin != nil {
		origin := Origin(*w.Origin)
		m.Origin = &origin
	}
	return m
}

// EncodeCommand returns the stable encoding of the command, used in the raft log.
func EncodeCommand(c Command) ([]byte, error) {
	w := wireCommand{RequestID: c.RequestID, IfVersion: c.IfVersion}
	level := byte(levelFirst)
	switch x := c.Change.(type) {
	case Found:
		w.Found = &wireFound{
			ClusterID: x.ClusterID, EtcdClusterID: x.EtcdClusterID, Spec: toWireSpec(x.Spec),
			Cuts: toBytes(x.Cuts), Replicas: x.Replicas, Finalized: x.Finalized,
		}
		level = byte(max(levelFirst, x.Finalized)) //nolint:gosec // few
		if x.Spec.Owners != 0 {
			level = max(level, LevelSettings)
		}
	case Assign:
		w.Assign = &wireAssign{}
		for _, m := range x.Moves {
			w.Assign.Moves = append(w.Assign.Moves, wireMove(m))
		}
	case Split:
		if x.Stay {
			level = LevelHomes
		}
		if x.Watches != 0 {
			level = LevelWatches
		}
		w.Split = &wireSplit{Shard: x.Shard, At: toBytes(x.At), Stay: x.Stay, Watches: x.Watches}
	case Merge:
		level = LevelHomes
		w.Merge = new(wireMerge(x))
	case Rehome:
		level = LevelHomes
		w.Rehome = &wireRehome{}
		for _, h := range x.Homes {
			if h.Home.marked() {
				level = LevelWatches
			}
			w.Rehome.Homes = append(w.Rehome.Homes, wireShardHome{Shard: h.Shard, Home: wireHome(h.Home)})
		}
	case Drain:
		level = LevelHomes
		w.Drain = new(wireDrain(x))
	case Renew:
		level = levelLineage
		w.Renew = &wireRenew{Lineage: x.Lineage, EtcdClusterID: x.EtcdClusterID, Origin: wireOrigin(x.Origin)}
	case Configure:
		level = LevelSettings
		w.Configure = &wireConfigure{Replicas: x.Replicas, Owners: x.Owners, Ranges: toWireRanges(x.Ranges)}
	case Finalize:
		level = byte(max(LevelSettings, x.Level)) //nolint:gosec // few
		w.Finalize = new(wireFinalize(x))
	default:
		return nil, fmt.Errorf("encode command: %w: change %T", ErrMalformed, c.Change)
	}
	return encode(level, w)
}

// DecodeCommand decodes the output of EncodeCommand. It fails with [ErrNewer]
// or [ErrMalformed]. [Apply] checks whether the command is valid.
func DecodeCommand(b []byte) (Command, error) {
	var w wireCommand
	if err := decode(b, &w); err != nil {
		return Command{}, fmt.Errorf("decode command: %w", err)
	}
	c := Command{RequestID: w.RequestID, IfVersion: w.IfVersion}
	n := 0
	if x := w.Found; x != nil {
		n++
		c.Change = Found{
			ClusterID: x.ClusterID, EtcdClusterID: x.EtcdClusterID, Spec: fromWireSpec(x.Spec),
			Cuts: toStrings(x.Cuts), Replicas: x.Replicas, Finalized: x.Finalized,
		}
	}
	if w.Assign != nil {
		n++
		var a Assign
		for _, m := range w.Assign.Moves {
			a.Moves = append(a.Moves, Move(m))
		}
		c.Change = a
	}
	if w.Split != nil {
		n++
		c.Change = Split{Shard: w.Split.Shard, At: toStrings(w.Split.At), Stay: w.Split.Stay, Watches: w.Split.Watches}
	}
	if w.Merge != nil {
		n++
		c.Change = Merge(*w.Merge)
	}
	if w.Rehome != nil {
		n++
		var r Rehome
		for _, h := range w.Rehome.Homes {
			r.Homes = append(r.Homes, ShardHome{Shard: h.Shard, Home: Home(h.Home)})
		}
		c.Change = r
	}
	if w.Drain != nil {
		n++
		c.Change = Drain(*w.Drain)
	}
	if x := w.Renew; x != nil {
		n++
		c.Change = Renew{Lineage: x.Lineage, EtcdClusterID: x.EtcdClusterID, Origin: Origin(x.Origin)}
	}
	if x := w.Configure; x != nil {
		n++
		c.Change = Configure{Replicas: x.Replicas, Owners: x.Owners, Ranges: fromWireRanges(x.Ranges)}
	}
	if w.Finalize != nil {
		n++
		c.Change = Finalize(*w.Finalize)
	}
	if n != 1 {
		return Command{}, fmt.Errorf("decode command: %w: %d changes", ErrMalformed, n)
	}
	return c, nil
}

func encode(level byte, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append([]byte{level}, b...), nil
}

func decode(b []byte, v any) error {
	if len(b) == 0 || b[0] == 0 {
		return fmt.Errorf("%w: no feature level", ErrMalformed)
	}
	if b[0] > Level {
		return fmt.Errorf("feature level %d, this version knows %d: %w", b[0], Level, ErrNewer)
	}
	d := json.NewDecoder(bytes.NewReader(b[1:]))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: trailing bytes", ErrMalformed)
	}
	return nil
}

func toWireRange(r kv.Range) wireRange { return wireRange{Start: []byte(r.Start), End: []byte(r.End)} }

func fromWireRange(w wireRange) kv.Range { return kv.Range{Start: string(w.Start), End: string(w.End)} }

func toWireRanges(ranges []kv.Range) []wireRange {
	var out []wireRange
	for _, r := range ranges {
		out = append(out, toWireRange(r))
	}
	return out
}

func fromWireRanges(ranges []wireRange) []kv.Range {
	var out []kv.Range
	for _, r := range ranges {
		out = append(out, fromWireRange(r))
	}
	return out
}

func toWireSpec(s Spec) wireSpec {
	return wireSpec{Ranges: toWireRanges(s.Ranges), Shards: s.Shards, Replicas: s.Replicas, Owners: s.Owners}
}

func fromWireSpec(w wireSpec) Spec {
	return Spec{Ranges: fromWireRanges(w.Ranges), Shards: w.Shards, Replicas: w.Replicas, Owners: w.Owners}
}

func toBytes(ss []string) [][]byte {
	var out [][]byte
	for _, s := range ss {
		out = append(out, []byte(s))
	}
	return out
}

func toStrings(bs [][]byte) []string {
	var out []string
	for _, b := range bs {
		out = append(out, string(b))
	}
	return out
}
