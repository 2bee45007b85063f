package etcd

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// meter counts the bytes received by a connection.
type meter struct {
	net.Conn
	bytes atomic.Int64
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	m.bytes.Add(int64(n))
	return n, err //nolint:wrapcheck // it is the connection
}

// meters are the connections of a client, with their received bytes at the last call of brought.
type meters struct {
	mu  sync.Mutex
	all map[*meter]int64 // guarded by mu
}

func (m *meters) dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err //nolint:wrapcheck // as the dialer's
	}
	x := &meter{Conn: c}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[x] = 0
	return x, nil
}

// brought returns the connections that have received at least least bytes since the last call.
func (m *meters) brought(least int64) (out []*meter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for x, before := range m.all {
		n := x.bytes.Load()
		if n-before >= least {
			out = append(out, x)
		}
		m.all[x] = n
	}
	return out
}

// History and events use separate connections, so that the catch-up of one client does not delay the watches of
// others.
func TestThePastDoesNotDelayEvents(t *testing.T) {
	s := etcdtest.Start(t)
	cfg := testConfig(s.Endpoint())
	conns := &meters{all: make(map[*meter]int64)}
	cfg.Dialer = conns.dial
	c := newClient(t, cfg)
	const size = 1 << 20
	put := func() kv.Revision {
		t.Helper()
		r, err := s.Client().Put(t.Context(), "/a", string(bytes.Repeat([]byte("v"), size)))
		if err != nil {
			t.Fatal(err)
		}
		return kv.Revision(r.Header.Revision)
	}
	first := put()
	var written kv.Revision
	for u, err := range c.Follow(t.Context(), kv.FollowRequest{Range: kv.Prefix("/a"), From: first + 1}) {
		if err != nil {
			t.Fatal(err)
		}
		if written == 0 {
			conns.brought(0)
			written = put()
		}
		if u.Revision >= written {
			break
		}
	}
	events := conns.brought(size)
	h, err := c.History(t.Context(), HistoryRequest{Range: kv.Prefix("/a"), From: first, Before: written + 1, MaxBytes: 4 * size})
	if err != nil || len(h.Batches) != 2 {
		t.Fatalf("got %d revisions, want 2, %v", len(h.Batches), err)
	}
	past := conns.brought(size)
	if len(events) != 1 || len(past) != 1 || events[0] == past[0] {
		t.Errorf("events use %d connections and history %d, want one each; the same one: %t", len(events), len(past), len(events) > 0 && len(past) > 0 && events[0] == past[0])
	}
}
