package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

const watchMethod = "/etcdserverpb.Watch/Watch"

// watchPrefix is that of all keys that are watched.
const watchPrefix = "/bench/watched/"

// watchers are watches of one prefix, many on a stream.
type watchers struct {
	conns     []*grpc.ClientConn
	streams   []*watchStream
	after     int64        // the revision before the first event
	expected  int64        // events for each watch
	delivered atomic.Int64 // over all watches
}

// watchStream is one stream. Its fields belong to the goroutine that reads it.
type watchStream struct {
	grpc.ClientStream
	next map[int64]int64 // by watch ID: the revision that comes next
}

// openWatchers opens so many watches on streams of perStream each, and returns
// when all are created. Ten streams share a connection.
func openWatchers(ctx context.Context, endpoints []string, watches, perStream int, after, expected int64) (*watchers, error) {
	const perConn = 10
	w := &watchers{after: after, expected: expected}
	streams := (watches + perStream - 1) / perStream
	for i := range (streams + perConn - 1) / perConn {
		conn, err := dial(endpoints[i%len(endpoints)])
		if err != nil {
			return nil, err
		}
		w.conns = append(w.conns, conn)
	}
	g, gctx := errgroup.WithContext(ctx)
	for i := range streams {
		n := min(perStream, watches-i*perStream)
		// The stream outlives the group.
		stream, err := w.conns[i%len(w.conns)].NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, watchMethod)
		if err != nil {
			return nil, fmt.Errorf("open a watch stream: %w", err)
		}
		s := &watchStream{ClientStream: stream, next: make(map[int64]int64, n)}
		w.streams = append(w.streams, s)
		g.Go(func() error { return s.create(gctx, n, after+1) })
	}
	return w, g.Wait()
}

// create creates n watches.
func (s *watchStream) create(ctx context.Context, n int, from int64) error {
	req := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{
		Key: []byte(watchPrefix), RangeEnd: []byte("/bench/watched0"),
	}}}
	var r watched
	for range n {
		if err := s.SendMsg(req); err != nil {
			return fmt.Errorf("create a watch: %w", err)
		}
		if err := s.RecvMsg(&r); err != nil {
			return fmt.Errorf("create a watch: %w", err)
		}
		if !r.created || r.canceled {
			return fmt.Errorf("a watch was not created: %s", r.reason)
		}
		s.next[r.id] = from
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// run reads all streams until every watch has every event.
func (w *watchers) run() error {
	var g errgroup.Group
	for _, s := range w.streams {
		g.Go(func() error {
			err := w.read(s)
			if err != nil {
				w.close() // nobody waits for what cannot come
			}
			return err
		})
	}
	return g.Wait()
}

func (w *watchers) read(s *watchStream) error {
	var r watched
	for waiting := len(s.next); waiting > 0; {
		if err := s.RecvMsg(&r); err != nil {
			return fmt.Errorf("read a watch: %w", err)
		}
		done, err := s.take(&r, w.after+w.expected)
		if err != nil {
			return err
		}
		w.delivered.Add(int64(len(r.revisions)))
		if done {
			waiting--
		}
	}
	return nil
}

// take checks an answer: each watch sees each revision once, in order. Done
// says that this was the last one of its watch.
func (s *watchStream) take(r *watched, last int64) (done bool, err error) {
	next, ok := s.next[r.id]
	if !ok {
		return false, fmt.Errorf("an answer for watch %d, which there is not", r.id)
	}
	if r.canceled {
		return false, fmt.Errorf("watch %d was cancelled: %s", r.id, r.reason)
	}
	for _, revision := range r.revisions {
		if revision != next {
			return false, fmt.Errorf("watch %d: revision %d where %d comes next", r.id, revision, next)
		}
		next++
	}
	s.next[r.id] = next
	return len(r.revisions) > 0 && next > last, nil
}

func (w *watchers) close() {
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// write puts n values, so many per second, each a revision.
func write(ctx context.Context, cli *clientv3.Client, n, perSecond, size int) error {
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for i := range n {
		if _, err := cli.Put(ctx, fmt.Sprintf("%s%03d", watchPrefix, i%100), value(i, size)); err != nil {
			return fmt.Errorf("write an event: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), context.Cause(ctx))
		}
	}
	return nil
}
