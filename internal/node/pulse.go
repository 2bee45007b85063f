package node

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// pulseEvery is the interval at which the parts of the node are touched.
	pulseEvery = 5 * time.Second
	// stuckLooks is how many consecutive checks find the same touch in progress before
	// the node counts as stuck. Checks are counted, not time: a process that was
	// stopped, or has little CPU, checks as rarely as it works.
	stuckLooks = 6
)

// pulse detects parts that will never answer again, as after a deadlock. It touches
// each in turn, which takes the locks that serving takes. A slow or isolated node is
// not stuck, and a restart would only cost its copies.
type pulse struct {
	parts []vital

	mu      sync.Mutex
	touched string // the part that is being touched; "": none. guarded by mu
	looks   int    // checks that found this touch in progress; guarded by mu
}

// vital is a part that serving needs. Its touch returns at once when it works.
type vital struct {
	name  string
	touch func()
}

func newPulse(n *Node) *pulse {
	return &pulse{parts: []vital{
		{"the shard map", func() { n.placement.Map() }},
		{"the members", func() { n.members.Members() }},
		{"the watch of etcd's revision", func() { n.clock.Last() }},
		{"the shards", func() {
			for _, h := range n.copies.All() {
				h.Cache.Status()
			}
		}},
	}}
}

// run touches the parts, until ctx ends. It abandons a touch that never returns:
// nothing in the process can end it.
func (p *pulse) run(ctx context.Context) error {
	tick := time.NewTicker(pulseEvery)
	defer tick.Stop()
	done := p.touchAll()
	for {
		select {
		case <-ctx.Done():
			select {
			case <-done:
			case <-time.After(pulseEvery):
			}
			return nil
		case <-tick.C:
		}
		select {
		case <-done:
			done = p.touchAll()
		default:
			p.mu.Lock()
			p.looks++
			p.mu.Unlock()
		}
	}
}

func (p *pulse) touchAll() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, part := range p.parts {
			p.begin(part.name)
			part.touch()
		}
		p.begin("")
	}()
	return done
}

func (p *pulse) begin(part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.touched, p.looks = part, 0
}

// stuck returns a message with the part that does not answer; "" when all do.
func (p *pulse) stuck() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.looks < stuckLooks {
		return ""
	}
	return fmt.Sprintf("%s: no answer for %s; the process is stuck and must be restarted", p.touched, time.Duration(p.looks)*pulseEvery)
}

// Stuck returns why the process must be restarted; "" while it works, even if it
// serves nothing.
func (n *Node) Stuck() string { return n.pulse.stuck() }
