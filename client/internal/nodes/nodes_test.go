package nodes

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/connect"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
)

// fake is a watch that records its loss.
type fake struct {
	create pb.CreateWatch
	lost   error // why it was handed back; nil: not handed back
}

func (f *fake) Begin() *pb.CreateWatch           { return &f.create }
func (f *fake) Handle(*Stream, int64, *Response) {}
func (f *fake) End(err error)                    { f.lost = err }
func (f *fake) Lost(_ *Stream, _ int64, v outcome.Verdict, _ time.Duration) {
	f.lost = v.Err
}

// unserved returns a pool whose streams the test serves.
func unserved(t *testing.T) *Pool {
	t.Helper()
	pulse := retry.NewPulse(time.Second/12, time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	p := New(Config{
		Connect: connect.Options{Login: connect.NewLogin("", nil)}, Pulse: pulse, Logger: slog.New(slog.DiscardHandler),
		Silence: time.Second, AttemptTimeout: time.Second, Serve: func(*Stream) {},
	})
	go pulse.Run(ctx)
	t.Cleanup(func() {
		cancel()
		p.Close()
	})
	return p
}

// join puts a watch on a stream to a node.
func join(t *testing.T, p *Pool, w Watch, addr string) (*Stream, int64) {
	t.Helper()
	s, id, err := p.Join(w, addr)
	if err != nil {
		t.Fatal(err)
	}
	return s, id
}

// A node that does not start a watch in time is left. A state may take longer, because it
// queues at the node; a closed or started watch is never late.
func TestAWatchThatANodeDoesNotStartIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := unserved(t)
		plain, state, started, closed := new(fake), new(fake), new(fake), new(fake)
		state.create.Start = &pb.CreateWatch_StateFirst{StateFirst: true}
		s, _ := join(t, p, plain, "a:1")
		join(t, p, state, "a:1")
		_, id := join(t, p, started, "a:1")
		s.Started(id)
		_, id = join(t, p, closed, "a:1")
		s.Remove(id, true)
		late := func(after time.Duration, want ...Watch) {
			t.Helper()
			time.Sleep(after)
			got := slices.Collect(maps.Values(s.overdue()))
			for _, w := range want {
				if !slices.Contains(got, w) {
					t.Errorf("%v is not late", w)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d watches are late, want %d", len(got), len(want))
			}
		}
		late(startTimeout)
		late(time.Millisecond, plain)
		late(stateTimeout-startTimeout-time.Millisecond, plain)
		late(time.Millisecond, plain, state)
	})
}

// A node whose stream breaks is not the first choice of the next watches, and the
// connection to a silent node is closed.
func TestANodeWhoseStreamBreaksIsAvoided(t *testing.T) {
	for name, c := range map[string]struct {
		cause          error
		boxed, dropped bool
	}{
		"silent":         {outcome.ErrSilent, true, true},
		"ended":          {outcome.ErrEnded, true, false},
		"refused":        {outcome.ErrRefused, true, false},
		"no watch on it": {outcome.ErrIdle, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := unserved(t)
				w := new(fake)
				s, id := join(t, p, w, "a:1")
				conn, err := grpc.NewClient("passthrough:///a:1", grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, outcome.ErrRefused }))
				if err != nil {
					t.Fatal(err)
				}
				_ = s.node.Conn.Close()
				s.node.Conn = conn
				if errors.Is(c.cause, outcome.ErrIdle) {
					s.Remove(id, true)
				}
				s.cancel(c.cause)
				s.run()
				connections, streams := p.Count()
				if got := p.Boxed("a:1"); got != c.boxed || (connections == 0) != c.dropped || streams > 0 || len(s.node.streams) > 0 {
					t.Errorf("in the penalty box: %t; %d connections, %d streams left", got, connections, streams)
				}
				if lost := errors.Is(w.lost, c.cause); lost != c.boxed {
					t.Errorf("the watch is handed back: %v", w.lost)
				}
				if want := map[bool]string{true: "b:1", false: "a:1"}[c.boxed]; p.Choose([]string{"a:1", "b:1"}, nil) != want {
					t.Errorf("the next watch does not go to %s", want)
				}
			})
		})
	}
}

// Connections are closed when no watch uses them and their node is no longer known.
func TestConnectionsToFormerNodesAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := unserved(t)
		join(t, p, new(fake), "watched:1")
		for _, addr := range []string{"gone:1", "live:1"} {
			if _, err := p.Get(addr); err != nil {
				t.Fatal(err)
			}
		}
		p.Forget(map[string]bool{"live:1": true})
		if got := slices.Sorted(maps.Keys(p.nodes)); !slices.Equal(got, []string{"live:1", "watched:1"}) {
			t.Errorf("connections to %v", got)
		}
	})
}
