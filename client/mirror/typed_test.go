package mirror_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
)

type route struct {
	Hosts  []string
	Weight int
}

// told records the calls of OnChange and OnInvalid.
type told struct {
	mu    sync.Mutex
	calls []string
}

func (c *told) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf(format, args...))
}

// take returns the calls since the last take.
func (c *told) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

func weight(r *route) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprint(r.Weight)
}

// routesOf starts a typed mirror whose calls are recorded.
func routesOf(t *testing.T, c *client.Client) (*mirror.Typed[route], *told) {
	t.Helper()
	calls := &told{}
	m := mirror.NewTyped(t.Context(), c, demo, mirror.Config[route]{
		OnChange:  func(key string, before, after *route) { calls.add("%s %s>%s", key, weight(before), weight(after)) },
		OnInvalid: func(kv client.KeyValue, err error) { calls.add("%s invalid: %s", kv.Key, kv.Value) },
		Indexes:   map[string]func(string, route) []string{"host": func(_ string, r route) []string { return r.Hosts }},
	})
	t.Cleanup(func() { _ = m.Close() })
	if err := m.Sync(deadline(t)); err != nil {
		t.Fatal(err)
	}
	return m, calls
}

func keysBy(m *mirror.Typed[route], host string) (keys []string) {
	for key := range m.By("host", host) {
		keys = append(keys, strings.TrimPrefix(key, "/demo/"))
	}
	return keys
}

// A program reads decoded values, finds them by index, and gets the changes. A value that
// cannot be decoded is reported and changes nothing else.
func TestTypedMirrorKeepsTheLastGoodValue(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	cluster.Put("/demo/a", `{"Hosts":["x","y"],"Weight":1}`)
	cluster.Put("/demo/b", `weight: 1`)
	cluster.Put("/demo/c", `{"Hosts":["x"],"Weight":3}`)
	m, calls := routesOf(t, connect(t, cluster))
	check := func(what string, step func() int64, wantCalls, wantX, wantAll string) {
		t.Helper()
		if err := m.WaitFor(deadline(t), cluster.At(step())); err != nil {
			t.Fatal(err)
		}
		var all []string
		for key, r := range m.All() {
			if got, ok := m.Get(key); !ok || got.Weight != r.Weight {
				t.Errorf("%s: Get(%s): %+v, %v", what, key, got, ok)
			}
			all = append(all, fmt.Sprintf("%s=%d", strings.TrimPrefix(key, "/demo/"), r.Weight))
		}
		if got := strings.Join(all, " "); got != wantAll || m.Len() != len(all) {
			t.Errorf("%s: got %s (%d), want %s", what, got, m.Len(), wantAll)
		}
		if got := strings.Join(keysBy(m, "x"), " "); got != wantX {
			t.Errorf("%s: by host x: %s, want %s", what, got, wantX)
		}
		var got []string
		eventually(t, what+": told", func() bool {
			got = append(got, calls.take()...)
			return wantCalls == "" || strings.Join(got, ", ") == wantCalls
		})
	}
	check("the state", cluster.Revision, "/demo/b invalid: weight: 1, /demo/a ->1, /demo/c ->3", "a c", "a=1 c=3")
	check("a bad value", func() int64 { return cluster.Put("/demo/a", "{") }, "/demo/a invalid: {", "a c", "a=1 c=3")
	check("a good value", func() int64 { return cluster.Put("/demo/b", `{"Hosts":["x"],"Weight":2}`) }, "/demo/b ->2", "a b c", "a=1 b=2 c=3")
	check("another host", func() int64 { return cluster.Put("/demo/c", `{"Hosts":["z"],"Weight":4}`) }, "/demo/c 3>4", "a b", "a=1 b=2 c=4")
	check("good again", func() int64 { return cluster.Put("/demo/a", `{"Weight":5}`) }, "/demo/a 1>5", "b", "a=5 b=2 c=4")
	check("bad, then deleted", func() int64 { cluster.Put("/demo/b", "{"); return cluster.Revision() }, "/demo/b invalid: {", "b", "a=5 b=2 c=4")
	check("deleted", func() int64 { return cluster.Delete("/demo/b") }, "/demo/b 2>-", "", "a=5 c=4")
	check("two at once", func() int64 {
		return cluster.Txn(clienttest.Op{Key: "/demo/a", Value: `{"Weight":6}`}, clienttest.Op{Key: "/demo/d", Value: `{"Weight":7}`})
	}, "/demo/a 5>6, /demo/d ->7", "", "a=6 c=4 d=7")
	check("never good", func() int64 { return cluster.Put("/demo/e", "{") }, "/demo/e invalid: {", "", "a=6 c=4 d=7")
	check("never good, deleted", func() int64 { cluster.Delete("/demo/e"); return cluster.Put("/demo/d", `{"Weight":8}`) }, "/demo/d 7>8", "", "a=6 c=4 d=8")

	n := 0
	for range m.Range(client.Between("/demo/b", "/demo/d")) {
		n++
	}
	for range m.By("no index", "x") {
		n++
	}
	if _, ok := m.Get("/demo/e"); ok || n != 1 {
		t.Errorf("%d in the range", n)
	}
	addresses := cluster.Endpoints()
	_ = cluster.Close()
	cluster = start(t, clienttest.Config{Addresses: addresses})
	check("rebuilt", func() int64 { return cluster.Put("/demo/a", `{"Hosts":["x"],"Weight":9}`) }, "", "a", "a=9")
}

// Readers see whole revisions. OnChange gets each value once, and the sum of its calls
// equals the state, even if it is slow and nodes fail.
func TestTypedMirrorIsAtomic(t *testing.T) {
	cluster := start(t, clienttest.Config{FragmentEvents: 2, ChunkKeys: 2})
	write := func(v int) int64 {
		var ops []clienttest.Op
		for i := range 5 {
			ops = append(ops, clienttest.Op{Key: fmt.Sprintf("/demo/%d", i), Value: fmt.Sprint(v)})
		}
		return cluster.Txn(ops...)
	}
	write(0)
	have := map[string]int{}
	m := mirror.NewTyped(t.Context(), connect(t, cluster), demo, mirror.Config[int]{
		OnChange: func(key string, before, after *int) {
			if v, ok := have[key]; ok != (before != nil) || ok && v != *before {
				t.Errorf("%s: before is %v, but the last call had %d", key, before, v)
			}
			if after == nil {
				delete(have, key)
			} else {
				have[key] = *after
			}
		},
		Indexes: map[string]func(string, int) []string{"all": func(string, int) []string { return []string{"all"} }},
	})
	if err := m.Sync(deadline(t)); err != nil || len(have) != 5 {
		t.Fatalf("OnChange got %v before Sync, %v", have, err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				for what, all := range map[string]iter.Seq2[string, int]{"all": m.All(), "index": m.By("all", "all")} {
					values := map[int]bool{}
					for _, v := range all {
						values[v] = true
					}
					if len(values) != 1 {
						t.Errorf("%s: part of a revision: %v", what, values)
						return
					}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	var rev int64
	for i := range 200 {
		rev = write(i)
		switch {
		case i%40 == 10:
			cluster.Nodes()[i/40%3].CutAfter(2)
		case i%40 == 20:
			cluster.Compact(cluster.Revision())
		case i == 130:
			cluster.Restore(cluster.Revision() - 2)
		}
	}
	if err := m.WaitFor(deadline(t), cluster.At(rev)); err != nil {
		t.Error(err)
	}
	close(stop)
	wg.Wait()
	if m.Position().Lineage != cluster.Lineage() {
		t.Errorf("the position is %v", m.Position())
	}
	_ = m.Close() // OnChange has returned
	if len(have) != 5 || have["/demo/0"] != 199 {
		t.Errorf("OnChange got %v", have)
	}
}

func TestDecoders(t *testing.T) {
	value, err := proto.Marshal(&pb.KeyValue{Key: []byte("k"), Version: 3})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := mirror.Proto[*pb.KeyValue](value); err != nil || m.GetVersion() != 3 {
		t.Errorf("protobuf: %v, %v", m, err)
	}
	if m, err := mirror.Proto[*pb.KeyValue]([]byte{0xff}); err == nil || m != nil {
		t.Errorf("invalid protobuf: %v, %v", m, err)
	}
	if r, err := mirror.JSON[*route]([]byte(`{"Weight":3}`)); err != nil || r.Weight != 3 {
		t.Errorf("JSON: %v, %v", r, err)
	}
	if r, err := mirror.JSON[route]([]byte(`{`)); err == nil {
		t.Errorf("invalid JSON: %v", r)
	}
	if r, err := mirror.Unmarshal[route](xml.Unmarshal)([]byte(`<route><Weight>3</Weight></route>`)); err != nil || r.Weight != 3 {
		t.Errorf("XML: %v, %v", r, err)
	}
}

// A typed mirror that cannot start, or has ended, returns the reason.
func TestTypedMirrorEnds(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	at := cluster.At(cluster.Put("/demo/a", "1"))
	c := connect(t, cluster)
	wrong := mirror.NewTyped(t.Context(), c, client.Between("b", "a"), mirror.Config[int]{})
	if err := wrong.Sync(deadline(t)); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an empty range: %v", err)
	}
	blocked, release := make(chan struct{}), make(chan struct{})
	m := mirror.NewTyped(t.Context(), c, demo, mirror.Config[int]{OnChange: func(string, *int, *int) { close(blocked); <-release }})
	<-blocked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Sync(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("while OnChange runs: %v", err)
	}
	close(release)
	_ = c.Close()
	<-m.Done()
	later := at
	later.Revision++
	if err := m.WaitFor(deadline(t), later); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a mirror that has ended: %v", err)
	}
	if v, ok := m.Get("/demo/a"); !ok || v != 1 || m.Close() != nil {
		t.Error("the mirror has lost its content")
	}
	late := mirror.NewTyped(t.Context(), c, demo, mirror.Config[int]{})
	if err := late.Sync(deadline(t)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("a closed client: %v", err)
	}
	_ = late.Close()
}
