package membership

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// countedLooks counts the views that the observer reads.
type countedLooks struct {
	Transport
	looks *atomic.Int64
}

// IngestStream counts the stream: only the observer opens one this way.
func (c countedLooks) IngestStream(conn net.Conn) error {
	c.looks.Add(1)
	return c.Transport.IngestStream(conn)
}

// like makes a configuration as large on the wire as the one of deploy/k8s.
func like(looks *atomic.Int64) func(*Config) {
	return func(c *Config) {
		i := c.Self.Name[1:]
		c.Self = shard.Member{
			Name: "shardwatch-" + i, UUID: fmt.Sprintf("0f8fad5b-d9cb-469f-a165-%012s", i), Zone: "zone-1", Version: "v1.0.0", ClusterID: uuidA,
			ClientAddress: ":7400", PeerAddress: ":7401", RaftAddress: ":7402", HTTPAddress: ":7480", BootstrapExpect: 3,
		}
		c.Logger = nil
		c.Transport = countedLooks{c.Transport, looks}
	}
}

// An idle node reads its view as rarely as with ten members, and sends little. A new
// version of the map costs each node one small message, sent eight times.
func TestManyMembersCostLittleAtRestAndWhenTheMapChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const members, seconds = 40, 60
		var looks atomic.Int64
		var nodes []*running
		for i := range members {
			nodes = append(nodes, b.start(i+1, like(&looks)))
		}
		defer func() { stopAll(nodes) }()
		together(t, nodes)
		time.Sleep(time.Minute) // the joins are gossiped
		looks.Store(0)
		before := b.net.Bytes()
		time.Sleep(seconds * time.Second)
		rest := b.net.Bytes() - before
		if got := rest / members / seconds; got > 2000 {
			t.Errorf("a node sends %d bytes a second at rest", got)
		}
		// Twice a second, times ten members of forty; one more depending on the start of the minute.
		if got := looks.Load() / members; got < 1 || got > 2*seconds*smallView/members+1 {
			t.Errorf("a node read its view %d times in %d s at rest", got, seconds)
		}
		looks.Store(0)
		before = b.net.Bytes()
		for version := range seconds {
			nodes[version%3].SetMapVersion(uint64(version + 1))
			time.Sleep(time.Second)
		}
		if got := (b.net.Bytes() - before - rest) / members / seconds; got < 100 || got > 1000 {
			t.Errorf("a new version of the map costs a node %d bytes", got)
		}
		if got := looks.Load() / members; got > 2*seconds*smallView/members+1 {
			t.Errorf("a node read its view %d times in %d s for the versions of the map", got, seconds)
		}
	})
}

// An idle node with few members reads its view rarely, too: a read wakes several goroutines.
func TestFewMembersLookSeldomAtRest(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const members, seconds = 3, 60
		var looks atomic.Int64
		var nodes []*running
		for i := range members {
			nodes = append(nodes, b.start(i+1, like(&looks)))
		}
		defer func() { stopAll(nodes) }()
		together(t, nodes)
		time.Sleep(time.Minute)
		looks.Store(0)
		time.Sleep(seconds * time.Second)
		// Every two seconds; one more depending on the start of the minute.
		if got := looks.Load() / members; got < 1 || got > seconds/2+1 {
			t.Errorf("a node read its view %d times in %d s at rest", got, seconds)
		}
	})
}

// A suspicion that ends is seen without periodic reads.
func TestSuspicionAmongManyMembersIsSeenFromGossip(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var nodes []*running
		for i := range 12 {
			nodes = append(nodes, b.start(i+1, func(c *Config) { c.ViewInterval = time.Hour }))
		}
		defer func() { stopAll(nodes) }()
		together(t, nodes)
		time.Sleep(time.Minute)
		last := nodes[len(nodes)-1]
		name := last.Self().Name
		is := func(state shard.State) {
			t.Helper()
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
				others := 0
				for _, n := range nodes[:len(nodes)-1] {
					if n.member(name).State == state {
						others++
					}
				}
				if others == len(nodes)-1 {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("%d of %d see the member in state %v", others, len(nodes)-1, state)
				}
			}
		}
		for _, n := range nodes[:len(nodes)-1] {
			b.net.Cut(n.address, last.address)
		}
		is(shard.Suspect)
		b.net.Heal()
		is(shard.Alive)
	})
}

func TestQuietEndsWithARoundWithoutAWholePacket(t *testing.T) {
	start := time.Unix(100, 0)
	q := quiet{interval: 200 * time.Millisecond}
	for _, step := range []struct {
		ms, bytes      int // bytes 0: no request
		changed, after bool
	}{
		{0, 1300, true, false},    // the first, with messages
		{200, 1398, false, false}, // a whole packet
		{300, 1340, false, false}, // a probe
		{400, 1398, false, false},
		{420, 1398, false, false}, // with news of the map, a second in the round
		{600, 1300, false, false}, // a change
		{699, 0, false, false},
		{720, 0, false, true},
		{800, 1398, true, false},
		{1000, 1398, false, false},
	} {
		now := start.Add(time.Duration(step.ms) * time.Millisecond)
		if step.bytes > 0 {
			if got := q.offered(now, step.bytes); got != step.changed {
				t.Errorf("at %d ms: changed is %v", step.ms, got)
			}
		}
		if got := q.busy(now); got != step.after {
			t.Errorf("at %d ms: busy is %v", step.ms, got)
		}
	}
}
