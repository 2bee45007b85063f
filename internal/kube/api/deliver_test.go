package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/port"
	"github.com/shardwatch/shardwatch/internal/kube/selector"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// served is a feed's watches behind a server.
type served struct {
	*fanned
	s      *Server
	url    string
	client *http.Client
}

// serveWatches serves a feed over HTTP/2 or HTTP/1. The query has the number of the kind and of the first event.
func serveWatches(t *testing.T, x *fanned, second bool) *served {
	t.Helper()
	cfg := Defaults()
	cfg.Budget, cfg.BookmarkEvery, cfg.Recheck = budget.New(1<<30), 30*time.Millisecond, time.Hour
	v := &served{fanned: x, s: &Server{cfg: cfg, draining: make(chan struct{}), rounds: rounds{all: map[sender]*reviewed{}}}}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, _ := strconv.Atoi(r.URL.Query().Get("kind"))
		from, _ := strconv.Atoi(r.URL.Query().Get("from"))
		k := kinds[kind]
		q := &request{resource: pods(), namespace: k.namespace, labels: k.labels, fields: k.fields, bookmarks: true, version: kv.Revision(10 + from)}
		q.selector, _ = selector.Parse(k.labels, k.fields)
		a := &answer{s: v.s, f: x.feed, q: q, kind: source.Kind{APIVersion: "v1", Kind: "Pod"}, client: budget.Client{Name: "a", Max: budget.HalfOfTotal}}
		if err := a.watch(r.Context(), w, r); err != nil {
			t.Error(err)
		}
	})
	if second {
		s, err := grpcserver.New(grpcserver.Config{
			Credentials: insecure.NewCredentials(), Codec: wire.NewCodec(), HTTP: handler, MaxReceive: 1 << 16, MaxStreams: 250, MaxHeader: 1 << 16,
			StreamWindow: 1 << 18, ConnWindow: 1 << 20, HandshakeTimeout: time.Minute, PingAfter: time.Minute, PingTimeout: time.Minute, PingLeast: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		v.url = "http://" + l.Addr().String()
	} else {
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		v.url = s.URL
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(second)
	protocols.SetHTTP1(!second)
	v.client = &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	t.Cleanup(v.client.CloseIdleConnections)
	ctx, cancel := context.WithCancel(t.Context())
	var rounds sync.WaitGroup
	rounds.Go(func() {
		for ctx.Err() == nil {
			v.s.round(time.Now())
			time.Sleep(5 * time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); rounds.Wait() })
	return v
}

// watch opens a watch, and returns a reader of its response.
func (v *served) watch(ctx context.Context, t *testing.T, kind, from int) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/?kind=%d&from=%d", v.url, kind, from), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := v.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.ProtoMajor != 2 && resp.ProtoMajor != 1 || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", resp.Proto, resp.Status)
	}
	return resp
}

// slowly reads a piece at a time.
type slowly struct{ io.Reader }

func (s slowly) Read(b []byte) (int, error) {
	time.Sleep(50 * time.Microsecond)
	return s.Reader.Read(b[:min(len(b), 100)])
}

// Fast and slow clients with all kinds of selectors watch while pods change and watches leave the fan to read
// themselves. Each watch gets its events once, in order, and no bookmark precedes an event up to its version.
func TestServedWatchesGetTheirEventsOnce(t *testing.T) {
	for _, second := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2=%t", second), func(t *testing.T) {
			const changes = 300
			x := newFanned(t)
			x.fan.queued = 700 // in bytes, so that some watches leave the fan
			v := serveWatches(t, x, second)
			viewers := make([]*viewer, 3*len(kinds))
			var reading sync.WaitGroup
			for i := range viewers {
				k := kinds[i%len(kinds)]
				viewers[i] = x.view(t, k.namespace, k.labels, k.fields, 0, k.matches) // for comparison
				viewers[i].close()
				resp := v.watch(t.Context(), t, i%len(kinds), 0)
				reading.Go(func() {
					defer resp.Body.Close()
					body := io.TeeReader(resp.Body, &viewers[i].body)
					if i%3 == 0 {
						body = slowly{body}
					}
					for frames := object.NewFrames(object.JSON, body, 1<<20); ; {
						e, err := frames.Next()
						if err != nil {
							t.Errorf("watch %d: %v", i, err)
							return
						}
						if o, err := object.Parse(object.JSON, e.Object); err == nil && e.Type == object.Bookmark && string(o.ResourceVersion) == strconv.Itoa(10+changes) {
							return
						}
					}
				})
			}
			for i := range changes {
				x.change(t, &pod{fmt.Sprintf("n%d", i%2), fmt.Sprintf("p%d", i%4), fmt.Sprintf("a%d", i%3%2), fmt.Sprintf("h%d", i%7%3), 0}, false)
			}
			reading.Wait()
			if t.Failed() {
				return
			}
			for _, viewer := range viewers {
				viewer.body.Truncate(1 + bytes.LastIndexByte(viewer.body.Bytes(), '\n')) // a part of another bookmark
				x.check(t, viewer)
			}
		})
	}
}

// A watch releases all its resources however it ends: by its client, by its timeout, by a drain or by a withdrawn
// right.
func TestServedWatchesEnd(t *testing.T) {
	for _, second := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2=%t", second), func(t *testing.T) {
			x := newFanned(t)
			v := serveWatches(t, x, second)
			gone, leave := context.WithCancel(t.Context())
			first := v.watch(gone, t, 0, 0)
			defer first.Body.Close()
			others := make(chan error, 2)
			for range 2 {
				resp := v.watch(t.Context(), t, 4, 0)
				go func() {
					defer resp.Body.Close()
					_, err := io.Copy(io.Discard, resp.Body)
					others <- err
				}()
			}
			open := func(want int64) {
				t.Helper()
				for deadline := time.Now().Add(time.Minute); v.s.counts.watches.Load() != want; time.Sleep(time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("%d watches are open, want %d", v.s.counts.watches.Load(), want)
					}
				}
			}
			open(3)
			leave()
			open(2)
			var one *stream
			v.s.rounds.mu.Lock()
			for _, by := range v.s.rounds.all {
				for one = range by.watches {
					break
				}
			}
			v.s.rounds.mu.Unlock()
			one.ask(askWithdrawn)
			if err := <-others; err != nil {
				t.Errorf("a watch whose right was withdrawn did not end in order: %v", err)
			}
			open(1)
			v.s.rounds.drain()
			if err := <-others; err != nil {
				t.Errorf("a watch did not end in order in a drain: %v", err)
			}
			open(0)
			v.s.rounds.mu.Lock()
			defer v.s.rounds.mu.Unlock()
			if len(v.s.rounds.all) > 0 {
				t.Errorf("senders remain without watches: %v", v.s.rounds.all)
			}
			x.fan.mu.Lock()
			defer x.fan.mu.Unlock()
			if len(x.fan.all) > 0 || x.users.Load() != 0 || v.s.counts.withdrawn.Load() != 1 || v.s.cfg.Budget.Take(budget.Client{Name: "a", Max: 1 << 30}, budget.Watches, 0, 0) != nil {
				t.Errorf("want no groups, no users, one withdrawn watch and no held memory: %d groups, %d users, %d withdrawn", len(x.fan.all), x.users.Load(), v.s.counts.withdrawn.Load())
			}
		})
	}
}

// The node stops following a resource with open watches. Some watches read the cache themselves, others get the
// frames of their fan. Each watch ends in order, so that its client resumes on another node.
func TestServedWatchesEndWithTheirCache(t *testing.T) {
	for _, second := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2=%t", second), func(t *testing.T) {
			x := newFanned(t)
			x.fan.queued = 700 // in bytes, so that some watches leave the fan
			v := serveWatches(t, x, second)
			ended := make(chan error, 2*len(kinds))
			for i := range 2 * len(kinds) {
				resp := v.watch(t.Context(), t, i%len(kinds), 0)
				go func() {
					defer resp.Body.Close()
					_, err := io.Copy(io.Discard, slowly{resp.Body})
					ended <- err
				}()
			}
			for i := range 50 {
				x.change(t, &pod{fmt.Sprintf("n%d", i%2), fmt.Sprintf("p%d", i%4), fmt.Sprintf("a%d", i%3%2), fmt.Sprintf("h%d", i%7%3), 0}, false)
			}
			x.stop()
			for range 2 * len(kinds) {
				if err := <-ended; err != nil {
					t.Errorf("a watch did not end in order after the end of its cache: %v", err)
				}
			}
		})
	}
}

// interrupted is a transport to a viewer. Something happens while it sends for the first time.
type interrupted struct {
	v    *viewer
	do   func()
	sent chan struct{}
}

func (i *interrupted) SendFramed(_ func(), parts ...[]byte) error {
	for _, part := range parts {
		i.v.body.Write(part)
	}
	if do := i.do; do != nil {
		i.do = nil
		do()
	}
	i.sent <- struct{}{}
	return nil
}

func (*interrupted) Flush()                       {}
func (*interrupted) Attach(create func() any) any { return create() }

// An event arrives during the turn of a watch, after the watch has taken its frames and before it makes its
// bookmark. The bookmark does not pass the event.
func TestABookmarkPassesNoConcurrentEvent(t *testing.T) {
	x := newFanned(t)
	v := x.view(t, "", "", "", 0, func(*pod) bool { return true })
	v.step(t)
	to := &interrupted{v: v, sent: make(chan struct{}, 10)}
	to.do = func() { x.change(t, &pod{"n0", "p1", "a1", "h1", 0}, false) }
	v.to.s, v.to.waits, v.to.Transport = v.stream, v.to.waiting, to
	v.pumped = v.s.pumps.OpenAt("a", &v.to)
	v.task.Init(v.pumped, v.turn)
	x.change(t, &pod{"n0", "p0", "a1", strings.Repeat("h", 10_000), 0}, false) // large enough to be sent at once
	x.fan.progress()
	v.asked.Or(askBookmark)
	v.task.Start()
	for range 3 { // the first event, the bookmark, and the second event
		<-to.sent
	}
	v.pumped.Close()
	v.s.pumps.Wait()
	x.check(t, v)
	v.close()
}

// calling is a ResponseWriter that records the calls until the first flush.
type calling struct {
	header  http.Header
	calls   []string
	flushed func()
}

func (r *calling) Header() http.Header { return r.header }
func (r *calling) WriteHeader(int)     { r.calls = append(r.calls, "headers") }
func (r *calling) Flush()              { r.flushed() }

func (r *calling) Write(b []byte) (int, error) {
	r.calls = append(r.calls, string(b))
	return len(b), nil
}

// The headers of a watch are sent together with its bookmark. After headers without an event, as from a node that
// is killed between them, a reflector lists again.
func TestAWatchBeginsWithItsBookmark(t *testing.T) {
	x := newFanned(t)
	cfg := Defaults()
	cfg.Budget = budget.New(1 << 30)
	a := &answer{
		s: &Server{cfg: cfg, rounds: rounds{all: map[sender]*reviewed{}}}, f: x.feed, q: &request{resource: pods(), bookmarks: true, version: 10},
		kind: source.Kind{APIVersion: "v1", Kind: "Pod"}, client: budget.Client{Name: "a", Max: budget.HalfOfTotal},
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &calling{header: http.Header{}, flushed: cancel}
	if err := a.watch(ctx, w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)); err != nil {
		t.Fatal(err)
	}
	if len(w.calls) != 1 || !strings.HasPrefix(w.calls[0], `{"type":"BOOKMARK"`) {
		t.Errorf("the watch begins with the calls %q, want one write of a bookmark", w.calls)
	}
}

// dripping is a ResponseWriter to a client that takes a part of each write just before the timeout.
type dripping struct {
	calling
	takes time.Duration
}

func (r *dripping) Write(b []byte) (int, error) {
	time.Sleep(r.takes)
	return r.calling.Write(b)
}

// The initial events of a watch, and the events of a difference, end if the client reads them too slowly as a
// whole, although each single write is in time: they keep their state in memory.
func TestAStateIsNotHeldForASlowClient(t *testing.T) {
	const objects = 40
	for takes, ends := range map[time.Duration]bool{writeTime - time.Second: true, time.Millisecond: false} {
		for _, below := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				x := newFanned(t)
				for i := range objects {
					x.change(t, &pod{"n0", fmt.Sprintf("p%d", i), "a1", strings.Repeat("h", 20_000), 0}, false)
				}
				cfg := Defaults()
				cfg.Budget = budget.New(1 << 30)
				w := &dripping{calling{header: http.Header{}, flushed: func() {}}, takes}
				s := &stream{
					answer: &answer{s: &Server{cfg: cfg}, f: x.feed, q: &request{resource: pods()}, kind: source.Kind{APIVersion: "v1", Kind: "Pod"}, client: budget.Client{Name: "a", Max: budget.HalfOfTotal}},
					w:      w, ctx: t.Context(), control: http.NewResponseController(w), wake: wait.NewBell(),
				}
				s.stuck = port.NewWatchdog(w, s.control, writeTime)
				defer s.stuck.End()
				defer s.close()
				state, err := x.cache.At(t.Context(), 0)
				if err != nil {
					t.Fatal(err)
				}
				var complete bool
				if below {
					if err := s.catchUp(t.Context(), 10); err != nil {
						t.Fatal(err)
					}
					complete = s.encodeDifference()
				} else {
					complete = s.initial(state)
				}
				if complete == ends {
					t.Errorf("a client that takes %v for each event (difference: %t) gets all events: %t", takes, below, complete)
				}
				x.stop()
			})
		}
	}
}
