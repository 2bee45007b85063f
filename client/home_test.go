package client_test

import (
	"slices"
	"testing"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// homeRig is a cluster, and clients whose rounds are run by the test.
type homeRig struct {
	*clienttest.Cluster
	t *testing.T
}

func newHomeRig(t *testing.T) *homeRig {
	t.Helper()
	return &homeRig{start(t, clienttest.Config{}), t}
}

// watch returns a client with n started watches, each on its preferred node.
func (r *homeRig) watch(n int) (*client.Client, []*client.Watcher) {
	r.t.Helper()
	c := connect(r.t, r.Cluster)
	if _, err := admin.New(c).ShardMap(deadline(r.t)); err != nil {
		r.t.Fatal(err)
	}
	var ws []*client.Watcher
	for range n {
		w := c.Watch(r.t.Context(), demo, client.FromRevision(2))
		waitStarted(r.t, w)
		ws = append(ws, w)
	}
	return c, ws
}

// round runs a round of a client, and waits until its watches are served.
func (r *homeRig) round(c *client.Client, ws []*client.Watcher) {
	r.t.Helper()
	c.MoveHome()
	eventually(r.t, "all watches are served", func() bool {
		return !slices.ContainsFunc(ws, func(w *client.Watcher) bool { return !w.Stats().Attached })
	})
}

// at returns how many of the watches are served by a node.
func at(name string, ws ...*client.Watcher) (n int) {
	for _, w := range ws {
		if s := w.Stats(); s.Attached && s.Node == name {
			n++
		}
	}
	return n
}

// forgiven waits until no node is in the penalty box.
func (r *homeRig) forgiven(c *client.Client) {
	r.t.Helper()
	eventually(r.t, "no node is in the penalty box", func() bool { return !c.Boxed(r.Endpoints()) })
}

// After a rolling restart each node serves as many watches as before, and no
// watch has missed an event.
func TestClientsReturnAfterARollingRestart(t *testing.T) {
	r := newHomeRig(t)
	const clients = 30
	var cs []*client.Client
	var ws []*client.Watcher
	for range clients {
		c, w := r.watch(1)
		cs, ws = append(cs, c), append(ws, w...)
	}
	before := map[string]int{}
	for _, n := range r.Nodes() {
		before[n.Name] = at(n.Name, ws...)
	}
	var written []int64
	for _, n := range r.Nodes() {
		n.Kill()
		written = append(written, r.Put("/demo/a", n.Name))
		eventually(r.t, "the watches have left the node", func() bool {
			for _, w := range ws {
				if s := w.Stats(); !s.Attached || s.Node == n.Name {
					return false
				}
			}
			return true
		})
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	if n := at("n3", ws...); n != 0 {
		t.Fatalf("n3 was restarted last, but serves %d watches", n)
	}
	for i, c := range cs {
		r.forgiven(c)
		r.round(c, ws[i:i+1])
	}
	written = append(written, r.Put("/demo/a", "last"))
	for _, n := range r.Nodes() {
		if got := at(n.Name, ws...); got != before[n.Name] {
			t.Errorf("%s serves %d watches, want %d as before", n.Name, got, before[n.Name])
		}
	}
	for i, w := range ws {
		for _, want := range written {
			if u, err := w.Next(deadline(t)); err != nil || u.Revision != want {
				t.Fatalf("watch %d: %v at revision %d, %v; want revision %d", i, u.Kind, u.Revision, err, want)
			}
		}
	}
}

// A client with many watches first moves one, and then a tenth of them in each round.
func TestWatchesMoveBackAFewAtATime(t *testing.T) {
	r := newHomeRig(t)
	c, ws := r.watch(40)
	home := r.Node(ws[0].Stats().Node)
	r.leave(home, c, ws)
	var got []int
	for range 4 {
		r.round(c, ws)
		got = append(got, at(home.Name, ws...))
	}
	if want := []int{1, 5, 9, 13}; !slices.Equal(got, want) {
		t.Errorf("after each round the preferred node serves %v watches, want %v", got, want)
	}
}

// leave makes the watches leave a node, which is restarted.
func (r *homeRig) leave(home *clienttest.Node, c *client.Client, ws []*client.Watcher) {
	r.t.Helper()
	home.Kill()
	eventually(r.t, "the watches have left the node", func() bool {
		return !slices.ContainsFunc(ws, func(w *client.Watcher) bool { s := w.Stats(); return !s.Attached || s.Node == home.Name })
	})
	if err := home.Restart(); err != nil {
		r.t.Fatal(err)
	}
	r.forgiven(c)
}

// A watch does not return to a preferred node that drains, that cannot be reached, or that
// is in the penalty box.
func TestWatchesDoNotReturnToAnUnavailableHome(t *testing.T) {
	for name, fault := range map[string]func(*homeRig, *clienttest.Node, *client.Client){
		"drains": func(r *homeRig, n *clienttest.Node, c *client.Client) {
			n.Drain()
			eventually(r.t, "the client has learned of the drain", func() bool { return c.Draining(n.Name) })
		},
		"is killed":     func(_ *homeRig, n *clienttest.Node, _ *client.Client) { n.Kill() },
		"is silent":     func(_ *homeRig, n *clienttest.Node, _ *client.Client) { n.Stall() },
		"has a penalty": func(_ *homeRig, n *clienttest.Node, c *client.Client) { c.Penalise(n.Addr(), time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newHomeRig(t)
			c, ws := r.watch(1)
			home := r.Node(ws[0].Stats().Node)
			r.leave(home, c, ws)
			resumes := ws[0].Stats().Resumes
			fault(r, home, c)
			for range 3 {
				r.round(c, ws)
			}
			if s := ws[0].Stats(); s.Resumes != resumes || s.Node == home.Name {
				t.Errorf("the watch has moved: %+v", s)
			}
			home.Continue()
		})
	}
}

// A watch that its preferred node refuses is not sent there again at once.
func TestAWatchReturnsLessOftenToARefusingHome(t *testing.T) {
	r := newHomeRig(t)
	c, ws := r.watch(1)
	home := r.Node(ws[0].Stats().Node)
	r.leave(home, c, ws)
	home.RefuseWatches(&pb.Ended{Reason: pb.EndReason_END_REASON_LIMIT, Message: "too many watches"})
	r.round(c, ws)
	resumes := ws[0].Stats().Resumes
	for range 3 {
		r.round(c, ws)
	}
	if s := ws[0].Stats(); s.Resumes != resumes || s.Node == home.Name {
		t.Errorf("the watch has moved: %+v", s)
	}
}

// A watch in the middle of a unit is not moved, because the unit would have to begin again.
func TestAWatchInAUnitIsNotMoved(t *testing.T) {
	r := newHomeRig(t)
	_, ws := r.watch(1)
	w := ws[0]
	other := r.Endpoints()[0]
	if r.Nodes()[0].Name == w.Stats().Node {
		other = r.Endpoints()[1]
	}
	w.Begin(client.KindDelta)
	if w.MoveTo(other) {
		t.Error("moved in the middle of a unit")
	}
	w.Begin(0)
	if !w.MoveTo(other) {
		t.Error("not moved")
	}
	eventually(r.t, "the watch is served", func() bool { return w.Stats().Attached })
	rev := r.Put("/demo/a", "1")
	if u, err := w.Next(deadline(t)); err != nil || u.Revision != rev {
		t.Errorf("got %+v, %v", u, err)
	}
}
