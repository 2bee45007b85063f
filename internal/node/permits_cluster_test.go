package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// waiter is a request for a permit, waiting or granted.
type waiter struct {
	got    chan func() // receives the release of the permit
	failed chan error
	giveUp context.CancelFunc
}

// wants makes the node's etcd client request a permit.
func (m *machine) wants() *waiter {
	ctx, cancel := context.WithCancel(context.Background())
	m.c.t.Cleanup(cancel)
	w := &waiter{got: make(chan func(), 1), failed: make(chan error, 1), giveUp: cancel}
	permits := m.store.Permits()
	go func() {
		back, err := permits.Acquire(ctx, "test")
		if err != nil {
			w.failed <- err
			return
		}
		w.got <- back
	}()
	return w
}

// has waits for the permit.
func (w *waiter) has(t testing.TB) func() {
	t.Helper()
	select {
	case back := <-w.got:
		return back
	case err := <-w.failed:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("no permit was granted")
	}
	return nil
}

// takes acquires a permit from the granting node from, which then has granted out
// permits. Until the node reaches from, it uses its own permits.
func (m *machine) takes(from *machine, out int) (back func()) {
	m.c.t.Helper()
	testkit.Succeeds(m.c.t, fmt.Sprintf("%s gets permits from %s", m.name, from.name), func() error {
		back = m.wants().has(m.c.t)
		if o, _ := from.node.Permits(); o != out {
			back()
			return fmt.Errorf("%d permits granted, want %d", o, out)
		}
		return nil
	})
	return back
}

// asked waits until the granting node has so many granted and waiting requests.
func (m *machine) asked(out, waiting int) {
	m.c.t.Helper()
	testkit.Succeeds(m.c.t, fmt.Sprintf("%d permits granted and %d requests waiting at %s", out, waiting, m.name), func() error {
		if o, w := m.node.Permits(); o != out || w != waiting {
			return fmt.Errorf("%d and %d", o, w)
		}
		return nil
	})
}

// The number of permits holds for the whole cluster, whichever nodes request them. A
// node that reaches no granting node continues with its own permits.
func TestPermitsOfTheCluster(t *testing.T) {
	c := startCluster(t, 3, 3, func(cfg *node.Config) {
		cfg.MaxEtcdLists, cfg.PermitTimeout = 2, 10*time.Second // the machine may be busy
		cfg.Spec.Shards = 1                                     // so the leader does not list keys to find cuts
	})
	c.ready()
	one, two, three := c.nodes[0], c.nodes[1], c.nodes[2]
	one.asked(0, 0)

	first := two.takes(one, 1)
	second := three.takes(one, 2)
	one.asked(2, 0)
	local, remote, gone := one.wants(), three.wants(), two.wants()
	one.asked(2, 3)
	gone.giveUp()
	if err := <-gone.failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	one.asked(2, 2)
	first()
	first = local.has(t) // node-3 already has a permit
	one.asked(2, 1)
	second()
	second = remote.has(t)
	one.asked(2, 0)
	first()
	second()
	one.asked(0, 0)

	// The granting node stops, with permits granted and requests waiting.
	held := one.wants().has(t)
	first = two.takes(one, 2)
	waiting := three.wants()
	one.asked(2, 1)
	one.crash()
	second = waiting.has(t)
	held()
	first()
	second()
	three.takes(two, 1)()
	two.asked(0, 0)

	// The node returns. Requests that wait at node-2 go to it as soon as it is reachable.
	first = two.takes(two, 1)
	second = three.takes(two, 2)
	waiting = two.wants()
	two.asked(2, 1)
	one.start()
	waiting.has(t)()
	first()
	second()
	two.takes(one, 1)()

	// The node does not answer, and gossip has not noticed yet.
	one.crash()
	l, err := net.Listen("tcp", one.peers)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	three.wants().has(t)()
}
