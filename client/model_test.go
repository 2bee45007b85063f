package client

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
)

// past is a sequence of histories: the states of each, by revision. A state has the
// revision of each key's last change.
type past struct {
	lineages [][]map[string]int64 // lineage 1 and revision 0 come first
}

func (p *past) lineage() uint64 { return uint64(len(p.lineages)) }

func (p *past) at(lineage uint64) []map[string]int64 { return p.lineages[lineage-1] }

func (p *past) head(lineage uint64) int64 { return int64(len(p.at(lineage))) - 1 }

func (p *past) state(lineage uint64, revision int64) map[string]int64 {
	return p.at(lineage)[revision]
}

// write adds a revision to the newest history.
func (p *past) write(rng *rand.Rand) {
	states := &p.lineages[len(p.lineages)-1]
	revision := int64(len(*states))
	next := maps.Clone((*states)[revision-1])
	for range 1 + rng.IntN(4) {
		key := fmt.Sprintf("%02d", rng.IntN(20))
		if rng.IntN(3) == 0 {
			delete(next, key)
		} else {
			next[key] = revision
		}
	}
	*states = append(*states, next)
}

// restore begins another history at an earlier revision of the newest one.
func (p *past) restore(rng *rand.Rand) {
	old := p.at(p.lineage())
	p.lineages = append(p.lineages, slices.Clone(old[:2+rng.IntN(len(old)-1)]))
}

// peer is one node's side of a watch according to the API. It may break off at any time;
// then another node continues.
type peer struct {
	p        *past
	rng      *rand.Rand
	conflate bool

	lineage  uint64 // lineage of the node
	position int64  // the client's position after all sent messages
	// catchUp is the best possible catch-up: -1 from the window, 0 by a delta, 1 by a resync only.
	catchUp int
}

func kvsOf(state map[string]int64, keys []string) []*pb.KeyValue {
	var out []*pb.KeyValue
	for _, k := range keys {
		out = append(out, &pb.KeyValue{Key: []byte(k), ModRevision: state[k]})
	}
	return out
}

// open answers a request, and returns all that the node sends before events.
func (n *peer) open(r *pb.CreateWatch) []*pb.WatchResponse {
	created := &pb.Created{Lineage: n.lineage, Revision: n.p.head(n.lineage)}
	asked := r.GetLineage()
	switch at := r.GetStart().(type) {
	case *pb.CreateWatch_StartRevision:
		created.Revision = at.StartRevision - 1
	case *pb.CreateWatch_ResumeToken:
		_, _ = fmt.Sscan(string(at.ResumeToken), &asked, &created.Revision) // the format of this test
	}
	foreign := asked != 0 && asked != n.lineage
	if foreign {
		created.Revision = 0
	}
	n.position = created.Revision
	out := []*pb.WatchResponse{{Detail: &pb.WatchResponse_Created{Created: created}}}
	switch {
	case r.GetStateFirst():
		out = append(out, n.whole(pb.SyncKind_SYNC_KIND_STATE)...)
	case foreign, n.position < n.p.head(n.lineage) && n.catchUp > 0:
		out = append(out, n.whole(pb.SyncKind_SYNC_KIND_RESYNC)...)
	case n.position < n.p.head(n.lineage) && n.catchUp == 0:
		out = append(out, n.delta(pb.SyncKind_SYNC_KIND_DELTA)...)
	}
	return out
}

func (n *peer) whole(kind pb.SyncKind) []*pb.WatchResponse {
	n.position = n.p.head(n.lineage)
	state := n.p.state(n.lineage, n.position)
	keys := slices.Sorted(maps.Keys(state))
	return n.parts(&pb.Sync{Kind: kind, Revision: n.position}, kvsOf(state, keys), nil)
}

func (n *peer) delta(kind pb.SyncKind) []*pb.WatchResponse {
	from, to := n.position, n.p.head(n.lineage)
	last := map[string]bool{} // whether the key exists
	for revision := from + 1; revision <= to; revision++ {
		before, after := n.p.state(n.lineage, revision-1), n.p.state(n.lineage, revision)
		for k, mod := range after {
			if mod == revision {
				last[k] = true
			}
		}
		for k := range before {
			if _, ok := after[k]; !ok {
				last[k] = false
			}
		}
	}
	var changed []string
	var deleted [][]byte
	for k, exists := range last {
		if exists {
			changed = append(changed, k)
		} else {
			deleted = append(deleted, []byte(k))
		}
	}
	n.position = to
	return n.parts(&pb.Sync{Kind: kind, FromRevision: from, Revision: to}, kvsOf(n.p.state(n.lineage, to), changed), deleted)
}

// parts cuts a unit: begin and end with or without keys. Sometimes the node begins again.
func (n *peer) parts(head *pb.Sync, kvs []*pb.KeyValue, deleted [][]byte) []*pb.WatchResponse {
	var out []*pb.WatchResponse
	put := func(s *pb.Sync) {
		s.Kind, s.Revision = head.GetKind(), head.GetRevision()
		out = append(out, &pb.WatchResponse{Detail: &pb.WatchResponse_Sync{Sync: s}})
	}
	put(&pb.Sync{Begin: true, FromRevision: head.GetFromRevision()})
	for again := n.rng.IntN(8) == 0; len(kvs)+len(deleted) > 0; {
		k, d := min(n.rng.IntN(4), len(kvs)), min(n.rng.IntN(4), len(deleted))
		put(&pb.Sync{Kvs: kvs[:k], Deleted: deleted[:d]})
		if again && n.rng.IntN(3) == 0 {
			put(&pb.Sync{Begin: true, FromRevision: head.GetFromRevision()})
			again = false
			for _, r := range out[1 : len(out)-1] {
				put(&pb.Sync{Kvs: r.GetSync().GetKvs(), Deleted: r.GetSync().GetDeleted()})
			}
		}
		kvs, deleted = kvs[k:], deleted[d:]
	}
	put(&pb.Sync{End: true})
	return out
}

// more returns the next messages of the node: a revision, a unit, or progress.
func (n *peer) more() []*pb.WatchResponse {
	head := n.p.head(n.lineage)
	if n.position >= head || n.rng.IntN(6) == 0 {
		return []*pb.WatchResponse{progress(n.position)}
	}
	switch {
	case n.conflate:
		return n.delta(pb.SyncKind_SYNC_KIND_CONFLATED)
	case n.rng.IntN(8) == 0: // the watch has fallen behind the window
		return n.delta(pb.SyncKind_SYNC_KIND_DELTA)
	case n.rng.IntN(16) == 0:
		return n.whole(pb.SyncKind_SYNC_KIND_RESYNC)
	}
	n.position++
	before, after := n.p.state(n.lineage, n.position-1), n.p.state(n.lineage, n.position)
	var events []*pb.Event
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if after[k] == n.position {
			events = append(events, &pb.Event{Kv: kvsOf(after, []string{k})[0]})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[k]; !ok {
			events = append(events, &pb.Event{Type: pb.EventType_DELETE, Kv: &pb.KeyValue{Key: []byte(k), ModRevision: n.position}})
		}
	}
	if len(events) == 0 {
		return []*pb.WatchResponse{progress(n.position)}
	}
	var out []*pb.WatchResponse
	for len(events) > 0 {
		k := 1 + n.rng.IntN(len(events))
		out = append(out, &pb.WatchResponse{Revision: n.position, Events: events[:k], Fragment: k < len(events)})
		events = events[k:]
	}
	return out
}

// spoil turns valid messages of a node into invalid ones. It returns false if the change
// would not be detectable.
func spoil(rng *rand.Rand, rs []*pb.WatchResponse) ([]*pb.WatchResponse, bool) {
	i := rng.IntN(len(rs))
	sync := rs[i].GetSync()
	add := func(more ...*pb.WatchResponse) []*pb.WatchResponse {
		return slices.Insert(slices.Clone(rs), i+1, more...)
	}
	foreign := &pb.KeyValue{Key: []byte("zz"), ModRevision: 1}
	switch {
	case sync == nil && len(rs[i].GetEvents()) == 0:
		return nil, false
	case sync == nil && rng.IntN(2) == 0:
		return add(unit(1<<40, 1<<41, "01")), true
	case sync == nil:
		return add(&pb.WatchResponse{Revision: rs[i].GetRevision() + 1, Events: []*pb.Event{{Kv: foreign}}}), true
	case sync.GetEnd():
		return slices.Insert(slices.Clone(rs), i, &pb.WatchResponse{Revision: sync.GetRevision() + 1, Events: []*pb.Event{{Kv: foreign}}}), true
	case len(sync.GetKvs())+len(sync.GetDeleted()) > 0 && rng.IntN(2) == 0:
		return add(rs[i]), true // the same keys twice
	}
	return add(&pb.WatchResponse{Detail: &pb.WatchResponse_Sync{Sync: &pb.Sync{Kind: sync.GetKind(), Revision: sync.GetRevision() + 1}}}), true
}

// Random histories with restores, over random nodes that break off at any point, lag, know
// little, and break the protocol: after each update a client that applies them has exactly
// the state at its revision, and it reaches the end.
func TestAssemblerAndMirrorAgainstAModel(t *testing.T) {
	seed := testseed.Of(t)
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	var total Units
	broken := 0
	for round := range rounds {
		m := newModel(t, seed, uint64(round))
		for range 60 {
			m.step()
		}
		m.finish()
		if t.Failed() {
			t.Fatalf("seed %d round %d:\n%s", seed, round, strings.Join(m.log[max(0, len(m.log)-100):], "\n"))
		}
		total.States, total.Deltas, total.Resyncs, total.Conflated = total.States+m.units.States, total.Deltas+m.units.Deltas, total.Resyncs+m.units.Resyncs, total.Conflated+m.units.Conflated
		broken += m.broken
	}
	t.Logf("%+v, left nodes %d times for breaking the protocol", total, broken)
	if total.States == 0 || total.Deltas == 0 || total.Resyncs == 0 || total.Conflated == 0 || broken == 0 {
		t.Error("the test does not cover all kinds of units and broken nodes")
	}
}

// model is a watch, its consumer, and the expected state.
type model struct {
	t   *testing.T
	rng *rand.Rand
	p   past
	log []string

	a    assembler
	node *peer // nil: none
	sent []*pb.WatchResponse

	keys   map[string]int64 // the consumer's state: mod revisions
	at     Position
	known  bool  // the consumer got the state, or had it from the beginning
	units  Units // received units
	broken int   // how often a node was left
}

func newModel(t *testing.T, seed, round uint64) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, round)), keys: map[string]int64{}}
	m.p.lineages = [][]map[string]int64{{{}}}
	for range 1 + m.rng.IntN(10) {
		m.p.write(m.rng)
	}
	m.a.rng = Between("", "z")
	if m.rng.IntN(3) == 0 {
		m.a.conflate = time.Second
	}
	at := 1 + m.rng.Int64N(m.p.head(1))
	switch m.rng.IntN(3) {
	case 0:
		m.a.wantState = true
	case 1: // with the matching state
		m.a.positioned, m.a.position, m.a.lineage = true, at, 1
		m.hold(at)
	default:
		m.a.token = fmt.Appendf(nil, "1 %d", at)
		m.hold(at)
	}
	return m
}

// hold gives the consumer the state at a revision of the first history.
func (m *model) hold(revision int64) {
	maps.Copy(m.keys, m.p.state(1, revision))
	m.at, m.known = Position{Lineage: 1, Revision: revision}, true
}

func (m *model) say(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

// step makes one random step.
func (m *model) step() {
	switch m.rng.IntN(20) {
	case 0:
		m.say("restore")
		m.p.restore(m.rng)
		if m.node != nil { // its node notices, and ends running watches
			m.node = nil
		}
	case 1, 2:
		m.say("cut with %d to come", len(m.sent))
		m.node = nil
	case 3, 4, 5, 6:
		m.p.write(m.rng)
	default:
		m.receive(true)
	}
}

// receive opens the watch, or takes the next message of its node.
func (m *model) receive(faults bool) {
	if m.node == nil {
		lineage := m.p.lineage()
		if faults && m.rng.IntN(5) == 0 { // a node that has not learned of the restore
			lineage = 1 + m.rng.Uint64N(lineage)
		}
		m.node = &peer{p: &m.p, rng: m.rng, lineage: lineage, catchUp: m.rng.IntN(3) - 1, conflate: m.a.conflate > 0}
		r := m.a.begin()
		m.sent = m.node.open(r)
		m.say("open %v at lineage %d catch-up %d", r, lineage, m.node.catchUp)
	}
	if len(m.sent) == 0 {
		m.sent = m.node.more()
	}
	if faults && m.rng.IntN(20) == 0 {
		if bad, ok := spoil(m.rng, m.sent); ok {
			m.say("spoilt")
			m.sent = bad
		}
	}
	r := m.sent[0]
	m.sent = m.sent[1:]
	if c := r.GetCreated(); c != nil {
		m.left(m.a.start(c))
		return
	}
	u, whole, err := m.a.step(&nodes.Response{WatchResponse: r})
	m.say("%v -> %v %v %v", r, u, whole, err)
	if err == nil && whole {
		m.take(u)
	}
	m.left(err)
}

func (m *model) left(err error) {
	if err == nil {
		return
	}
	if !errors.Is(err, outcome.ErrProtocol) && !errors.Is(err, outcome.ErrBehind) {
		m.t.Errorf("left by %v", err)
	}
	m.broken++
	m.node = nil
}

// take applies an update and compares the states.
func (m *model) take(u Update) {
	m.units.add(&u)
	if u.Lineage < m.at.Lineage || u.Lineage == m.at.Lineage && u.Revision <= m.at.Revision && m.at.Revision > 0 {
		m.t.Errorf("ordered: %v at %d/%d after %d/%d", u.Kind, u.Lineage, u.Revision, m.at.Lineage, m.at.Revision)
	}
	if u.Lineage != m.at.Lineage && u.Kind != KindResync && u.Kind != KindState {
		m.t.Errorf("lineage changes by %v", u.Kind)
	}
	if u.From != 0 && u.From != m.at.Revision {
		m.t.Errorf("%v from %d, but the position is %d", u.Kind, u.From, m.at.Revision)
	}
	put := func(kv KeyValue) error { m.keys[string(kv.Key)] = kv.ModRevision; return nil }
	remove := func(key []byte) error { delete(m.keys, string(key)); return nil }
	if err := u.Apply(put, remove, func() error { clear(m.keys); return nil }); err != nil {
		m.t.Fatal(err)
	}
	m.at = u.Position()
	if want := m.p.state(u.Lineage, u.Revision); !maps.Equal(m.keys, want) {
		m.t.Errorf("after %v at %d/%d: %v, want %v", u.Kind, u.Lineage, u.Revision, m.keys, want)
	}
}

// finish lets the watch reach the end: no update is lost permanently.
func (m *model) finish() {
	m.node = nil
	for range 2000 {
		if lineage := m.p.lineage(); m.at.Lineage == lineage && m.at.Revision == m.p.head(lineage) {
			return
		}
		m.receive(false)
	}
	m.t.Errorf("stuck at %d/%d, the end is %d/%d", m.at.Lineage, m.at.Revision, m.p.lineage(), m.p.head(m.p.lineage()))
}
