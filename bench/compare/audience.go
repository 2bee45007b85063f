package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// watchPrefix is the prefix of all watched keys, which are spread over folders.
const (
	watchPrefix  = "/bench/watched/"
	watchFolders = 100
)

// Distributions of watches over streams and connections.
const (
	modeShared     = "shared"     // 100 watches on a stream, a stream on a connection
	modeStream     = "stream"     // a watch on a stream, 100 streams on a connection
	modeConnection = "connection" // a watch on a connection
)

// The watched ranges.
const (
	whatPrefix = "prefix"  // one prefix by all: every event matches every watch
	whatKeys   = "keys"    // an exact key by each: every event matches one watch
	whatFolder = "percent" // a folder by each: every event matches a watch in a hundred
)

// shape is a set of watches and the events that are written for them.
type shape struct {
	mode, what string
	watches    int
	size       int // of an event's value
}

// groups is the number of sets of keys, none of them empty. A watch covers one set, and the events
// go to the sets in turn.
func (s shape) groups() int {
	switch s.what {
	case whatKeys:
		return s.watches
	case whatFolder:
		return min(watchFolders, s.watches)
	}
	return 1
}

// matched is the number of watches that match an event.
func (s shape) matched() int { return max(1, s.watches/s.groups()) }

// In loads without a pace, writers are at most this number of events ahead of the average watch,
// and a server may send window bytes on a stream before they are read: etcd's grpc-proxy cuts a
// stream that does not move for 50 ms.
const (
	mostAhead = 1_000
	window    = 4 << 20
)

// watched returns the ranges of a group's watches.
func (s shape) watched(group int) (key, end string) {
	switch s.what {
	case whatKeys:
		return s.key(group), ""
	case whatFolder:
		return fmt.Sprintf("%s%05d/", watchPrefix, group), fmt.Sprintf("%s%05d0", watchPrefix, group)
	}
	return watchPrefix, "/bench/watched0"
}

// key returns the key of an event.
func (s shape) key(event int) string {
	if s.what == whatPrefix {
		return fmt.Sprintf("%s%05d/key", watchPrefix, event%watchFolders)
	}
	return fmt.Sprintf("%s%05d/key", watchPrefix, event%s.groups())
}

// perStream and perConn are the numbers of watches per stream and of streams per connection.
func (s shape) perStream() int {
	if s.mode == modeShared {
		return 100
	}
	return 1
}

func (s shape) perConn() int {
	if s.mode == modeStream {
		return 100
	}
	return 1
}

// audience is a client with all watches of a load. It checks that each watch receives each revision
// once and in order.
type audience struct {
	shape
	side   *side
	after  int64 // the revision before the first event
	events int

	began     time.Time
	ahead     chan struct{}         // has one element for each written event that is not delivered
	acked     []atomic.Int64        // by event: the time of its acknowledgement, in ns since began
	latency   map[string]*histogram // by endpoint: from that time to the receipt
	newest    atomic.Int64          // the greatest acknowledged revision
	delivered atomic.Int64
	messages  atomic.Int64 // with events, and
	carried   atomic.Int64 // their number of events

	options []grpc.DialOption // of its connections

	mu      sync.Mutex
	conns   []io.Closer // guarded by mu
	streams []*watchStream

	// lost is called when a stream breaks, and resumes it; nil: that is an error.
	lost func(ctx context.Context, s *watchStream, why error) error
}

// watchStream is one stream. Its fields belong to the goroutine that reads it.
type watchStream struct {
	stream
	end     string // its endpoint
	watches []*position
	waiting int // number of watches to be created
	hungry  int // number of watches that lack events
}

// position is the position of a watch.
type position struct {
	group   int
	last    int64 // the last received revision
	left    int   // missing events
	created bool
}

// newAudience creates an audience for events after a revision.
func newAudience(s *side, sh shape, after int64, events int) *audience {
	a := &audience{
		shape: sh, side: s, after: after, events: events, began: time.Now(), ahead: make(chan struct{}, mostAhead),
		acked: make([]atomic.Int64, events), latency: make(map[string]*histogram),
	}
	if sh.mode == modeConnection { // the client has as many as the servers
		a.options = append(a.options, grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10))
	}
	for _, end := range s.ends {
		a.latency[end] = new(histogram)
	}
	return a
}

// expected is the total number of expected deliveries.
func (a *audience) expected() (n int64) {
	for i := range a.watches {
		n += int64(a.position(i).left)
	}
	return n
}

// position is the start of a watch.
func (a *audience) position(watch int) *position {
	groups := a.groups()
	group := watch % groups
	return &position{group: group, last: a.after, left: (a.events - group + groups - 1) / groups}
}

// open opens all watches and returns when they are created.
func (a *audience) open(ctx context.Context) error {
	return a.connect(func(s *watchStream, conn connection) error { return a.create(ctx, s, conn) })
}

// openAndRead opens all watches and reads each at once.
func (a *audience) openAndRead(ctx context.Context) error {
	return a.connect(func(s *watchStream, conn connection) error {
		if err := a.create(ctx, s, conn); err != nil {
			return err
		}
		return a.readStream(ctx, s)
	})
}

// connect calls f for every stream, for many concurrently. The connections use the endpoints in
// turn.
func (a *audience) connect(f func(*watchStream, connection) error) error {
	var g errgroup.Group
	var conn connection
	var end string
	for at, n := 0, 0; at < a.watches; n++ {
		if n%a.perConn() == 0 {
			end = a.side.ends[n/a.perConn()%len(a.side.ends)]
			var err error
			if conn, err = a.dial(end); err != nil {
				return err
			}
		}
		s := &watchStream{end: end}
		for ; at < a.watches && len(s.watches) < a.perStream(); at++ {
			p := a.position(at)
			s.watches = append(s.watches, p)
			if p.left > 0 {
				s.hungry++
			}
		}
		a.streams = append(a.streams, s)
		conn := conn
		g.Go(func() error {
			err := f(s, conn)
			if err != nil {
				a.close() // ends the wait of the others
			}
			return err
		})
	}
	return g.Wait()
}

// dial opens a connection of the audience.
func (a *audience) dial(end string) (connection, error) {
	conn, err := a.side.connect(end, a.options...)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns = append(a.conns, conn)
	return conn, nil
}

const (
	etcdWatchMethod   = "/etcdserverpb.Watch/Watch"
	nativeWatchMethod = "/shardwatch.v1.CacheService/Watch"
)

// create opens a stream and creates its watches, each after its last received revision.
func (a *audience) create(ctx context.Context, s *watchStream, conn connection) (err error) {
	method := etcdWatchMethod
	if a.native() {
		method = nativeWatchMethod
	}
	if s.stream, err = conn.open(ctx, method); err != nil {
		return fmt.Errorf("open a watch stream: %w", err)
	}
	if a.native() {
		if err := s.SendMsg(allowWatchIDs()); err != nil {
			return fmt.Errorf("set the options of a stream: %w", err)
		}
	}
	for i, p := range s.watches {
		p.created = false
		if err := s.SendMsg(a.request(i, p)); err != nil {
			return fmt.Errorf("create a watch: %w", err)
		}
	}
	r := watched{native: a.native()}
	for s.waiting = len(s.watches); s.waiting > 0; {
		if err := s.RecvMsg(&r); err != nil {
			return fmt.Errorf("create a watch: %w", err)
		}
		if err := a.take(s, &r); err != nil {
			return err
		}
	}
	return nil
}

// allowWatchIDs allows the server to send events for several watches once.
func allowWatchIDs() *shardwatchv1.WatchRequest {
	return &shardwatchv1.WatchRequest{Request: &shardwatchv1.WatchRequest_Options{Options: &shardwatchv1.StreamOptions{AllowWatchIds: proto.Bool(true)}}}
}

func (a *audience) native() bool { return a.side.kind == sideNative }

// request creates the watch at an index of its stream. Its ID is the index plus firstID: servers of
// etcd's API number the watches of a stream this way.
func (a *audience) request(index int, p *position) proto.Message {
	key, end := a.watched(p.group)
	if a.native() {
		return &shardwatchv1.WatchRequest{Request: &shardwatchv1.WatchRequest_Create{Create: &shardwatchv1.CreateWatch{
			WatchId: int64(index) + a.firstID(), Key: []byte(key), RangeEnd: []byte(end),
			Start: &shardwatchv1.CreateWatch_StartRevision{StartRevision: p.last + 1},
		}}}
	}
	return &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{
		Key: []byte(key), RangeEnd: []byte(end), StartRevision: p.last + 1,
	}}}
}

func (a *audience) firstID() int64 {
	if a.native() {
		return 1
	}
	return 0
}

// read reads all streams until every watch has every event.
func (a *audience) read(ctx context.Context) error {
	var g errgroup.Group
	for _, s := range a.streams {
		g.Go(func() error {
			err := a.readStream(ctx, s)
			if err != nil {
				a.close() // do not wait for events that cannot arrive
			}
			return err
		})
	}
	return g.Wait()
}

func (a *audience) readStream(ctx context.Context, s *watchStream) error {
	r := watched{native: a.native()}
	for s.hungry > 0 {
		if err := s.RecvMsg(&r); err != nil {
			if a.lost == nil || ctx.Err() != nil {
				return fmt.Errorf("read a watch: %w", err)
			}
			if err := a.lost(ctx, s, err); err != nil {
				return err
			}
			continue
		}
		if err := a.take(s, &r); err != nil {
			return err
		}
	}
	return nil
}

// take checks an answer: each watch receives each revision once, in order.
func (a *audience) take(s *watchStream, r *watched) error {
	for _, id := range r.ids {
		at := id - a.firstID()
		if at < 0 || at >= int64(len(s.watches)) {
			if r.canceled || len(r.revisions) > 0 || r.created {
				return fmt.Errorf("an answer for watch %d, which does not exist: %s", id, r.reason)
			}
			continue // progress of a whole stream
		}
		p := s.watches[at]
		if r.canceled {
			return fmt.Errorf("watch %d was cancelled: %s", id, r.reason)
		}
		if r.created && !p.created {
			p.created = true
			s.waiting--
		}
		for _, revision := range r.revisions {
			if revision <= p.last || (revision != p.last+1 && a.groups() == 1) {
				return fmt.Errorf("watch %d: revision %d comes after %d", id, revision, p.last)
			}
			p.last = revision
		}
		if len(r.revisions) == 0 {
			continue
		}
		if p.left -= len(r.revisions); p.left == 0 {
			s.hungry--
		} else if p.left < 0 {
			return fmt.Errorf("watch %d was sent more events than were written", id)
		}
	}
	if len(r.revisions) == 0 {
		return nil
	}
	a.messages.Add(1)
	a.carried.Add(int64(len(r.revisions)))
	n := int64(len(r.ids) * len(r.revisions))
	each, all := int64(a.matched()), a.delivered.Add(n)
	for range all/each - (all-n)/each { // for the delivered events
		select {
		case <-a.ahead:
		default:
		}
	}
	now := int64(time.Since(a.began))
	for _, revision := range r.revisions {
		var took time.Duration // of events that precede the acknowledgement: none
		if at := revision - a.after - 1; at >= 0 && at < int64(len(a.acked)) {
			if acked := a.acked[at].Load(); acked != 0 {
				took = time.Duration(now - acked)
			}
		}
		a.latency[s.end].add(took, int64(len(r.ids)))
	}
	return nil
}

func (a *audience) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.conns {
		_ = c.Close()
	}
}

// writers bounds the concurrent puts.
const writers = 16

// write puts all events at a rate of perSecond, or if that is 0 as fast as the average watch keeps
// up. Without watches it writes as fast as the server accepts. It returns the durations of the
// puts.
func (a *audience) write(ctx context.Context, to writer, perSecond float64) (*histogram, error) {
	puts := new(histogram)
	value := value(1, a.size)
	var next atomic.Int64
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range writers {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= a.events {
					return nil
				}
				if perSecond > 0 {
					if err := pause(ctx, time.Until(start.Add(time.Duration(float64(i)/perSecond*float64(time.Second))))); err != nil {
						return err
					}
				}
				if perSecond == 0 && len(a.streams) > 0 {
					select {
					case a.ahead <- struct{}{}:
					case <-ctx.Done():
						return errors.Join(ctx.Err(), context.Cause(ctx))
					}
				}
				began := time.Now()
				revision, err := to.put(ctx, a.key(i), value)
				if err != nil {
					return fmt.Errorf("write an event: %w", err)
				}
				at := revision - a.after - 1
				if at < 0 || at >= int64(a.events) {
					return fmt.Errorf("another client has written in between: revision %d", revision)
				}
				a.acked[at].Store(int64(time.Since(a.began)))
				for newest := a.newest.Load(); revision > newest && !a.newest.CompareAndSwap(newest, revision); {
					newest = a.newest.Load()
				}
				puts.add(time.Since(began), 1)
			}
		})
	}
	return puts, g.Wait()
}

// writeUntil puts events at a rate of perSecond until ctx ends, and returns their number.
func (t *trial) writeUntil(ctx context.Context, sh shape, perSecond float64) (n int64, err error) {
	to, err := t.side.writer()
	if err != nil {
		return 0, err
	}
	defer to.Close()
	text, start := value(1, sh.size), time.Now()
	for ; pause(ctx, time.Until(start.Add(time.Duration(float64(n)/perSecond*float64(time.Second))))) == nil; n++ {
		if _, err := to.put(context.WithoutCancel(ctx), sh.key(int(n)), text); err != nil {
			return n, fmt.Errorf("write in the background: %w", err)
		}
	}
	return n, nil
}

// pause waits, or returns at once if d is not positive.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), context.Cause(ctx))
	}
}
