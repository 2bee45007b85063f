package server

import (
	"context"
	"fmt"
	"iter"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/tally"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// The two APIs that a watch may come by.
const (
	nativeAPI = shardwatchv1.WatcherAPI_WATCHER_API_NATIVE
	etcdAPI   = shardwatchv1.WatcherAPI_WATCHER_API_ETCD
)

// sampleEvery is how often it is noted how much each watch was sent: rates are
// those of the last one or two intervals.
const sampleEvery = 5 * time.Second

// clientOf returns where a call comes from; nil when that is not known.
func clientOf(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

// watchers returns the open watches of clients. It blocks no other caller,
// and may tell of some that have just ended.
func (s *Server) watchers() iter.Seq2[shardwatchv1.WatcherAPI, tally.Watcher] {
	return func(yield func(shardwatchv1.WatcherAPI, tally.Watcher) bool) {
		for _, st := range s.allStreams() {
			for _, w := range st.list() {
				if w.tally.Rung() == 0 {
					continue
				}
				out := tally.Watcher{Client: st.from, ID: w.id, Range: w.rng, Watch: &w.tally}
				if caller := w.caller.Load(); caller != nil {
					out.User = *caller
				}
				if !yield(nativeAPI, out) {
					return
				}
			}
		}
		if s.cfg.Etcd == nil {
			return
		}
		for w := range s.cfg.Etcd.Watchers() {
			if !yield(etcdAPI, w) {
				return
			}
		}
	}
}

// Ending counts the watches that would end if only the given ranges were served, which
// are in the order of their keys.
func (s *Server) Ending(served []kv.Range) (e mapchange.Ending) {
	then := shard.Spec{Ranges: served}
	for api, w := range s.watchers() {
		switch {
		case then.Covers(w.Range):
		case api == nativeAPI:
			e.Native++
		default:
			e.Etcd++
		}
	}
	return e
}

// allStreams returns the Watch streams of the native API.
func (s *Server) allStreams() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*stream, 0, len(s.streams))
	for st := range s.streams {
		out = append(out, st)
	}
	return out
}

// sample notes what the watches were sent, until ctx ends.
func (s *Server) sample(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			for _, w := range s.watchers() {
				w.Sample()
			}
			s.mu.Lock()
			s.sampled = [2]time.Time{s.sampled[1], now}
			s.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// figures returns what a watch's account says at a time.
func (s *Server) figures() func(w *tally.Watch) tally.Figures {
	s.mu.Lock()
	sampled := s.sampled[0]
	s.mu.Unlock()
	now, newest := time.Now(), s.cfg.Router.Newest()
	return func(w *tally.Watch) tally.Figures { return w.Figures(now, newest, sampled) }
}

// WatchSummary is what metrics tell of the open watches of one API.
type WatchSummary struct {
	API string
	// Rungs counts the watches by how they are served; index tally.Rung.
	Rungs map[tally.Rung]int64
	// Lag and Behind are the lags of watches, in revisions and in time: of half
	// of them, of 99 %, and of all, no watch lags more.
	Lag    [3]kv.Revision
	Behind [3]time.Duration
}

// Quantiles are those of WatchSummary.
func Quantiles() [3]float64 { return [3]float64{0.5, 0.99, 1} }

// WatchSummaries returns a summary for each API.
func (s *Server) WatchSummaries() []WatchSummary {
	apis := []shardwatchv1.WatcherAPI{nativeAPI, etcdAPI}
	out := []WatchSummary{{API: "native"}, {API: "etcd"}}
	var lags [2][]kv.Revision
	var behind [2][]time.Duration
	for i := range out {
		out[i].Rungs = make(map[tally.Rung]int64)
	}
	figures := s.figures()
	for api, w := range s.watchers() {
		i, f := slices.Index(apis, api), figures(w.Watch)
		out[i].Rungs[f.Rung]++
		lags[i], behind[i] = append(lags[i], f.Lag), append(behind[i], f.Behind)
	}
	for i := range out {
		slices.Sort(lags[i])
		slices.Sort(behind[i])
		for q, of := range Quantiles() {
			if n := len(lags[i]); n > 0 {
				at := min(n-1, int(of*float64(n)))
				out[i].Lag[q], out[i].Behind[q] = lags[i][at], behind[i][at]
			}
		}
	}
	return out
}

// Bounds of a part of a listing of watches.
const (
	watchersPart      = 1000
	watchersPartBytes = 256 << 10
)

// ListWatchers implements shardwatchv1.AdminServiceServer.
func (s *adminService) ListWatchers(r *shardwatchv1.ListWatchersRequest, out grpc.ServerStreamingServer[shardwatchv1.ListWatchersResponse]) error {
	return wire.Status(s.listWatchers(r, out))
}

// listWatchers shows a caller the watches of what the caller may read.
func (s *adminService) listWatchers(r *shardwatchv1.ListWatchersRequest, out grpc.ServerStreamingServer[shardwatchv1.ListWatchersResponse]) error {
	var within kv.Range
	if len(r.GetKey()) > 0 || len(r.GetRangeEnd()) > 0 {
		var err error
		if within, err = wire.Range(r.GetKey(), r.GetRangeEnd()); err != nil {
			return err
		}
	}
	if r.GetMinLag() < 0 {
		return &kv.InvalidError{Field: "min_lag", Reason: fmt.Sprintf("%d: must not be negative", r.GetMinLag())}
	}
	caller, g := "", s.srv.cfg.Guard
	if !open(g, kv.Range{}) {
		var err error
		if caller, err = s.srv.user(out.Context()); err != nil {
			return native(err)
		}
	}
	var part []*shardwatchv1.WatcherStatus
	size := 0
	send := func() error {
		m := &shardwatchv1.ListWatchersResponse{Watchers: part}
		part, size = nil, 0
		return out.Send(m)
	}
	figures := s.srv.figures()
	for api, w := range s.srv.watchers() {
		if !w.Range.Overlaps(within) {
			continue
		}
		f := figures(w.Watch)
		if int64(f.Lag) < r.GetMinLag() || g != nil && g.MayRead(caller, w.Range) != nil {
			continue
		}
		m := watcherMessage(api, w, f)
		m.Node = string(s.srv.cfg.Self)
		part = append(part, m)
		if size += len(m.GetKey()) + len(m.GetRangeEnd()); len(part) == watchersPart || size >= watchersPartBytes {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send() // also tells that there are none
}

func watcherMessage(api shardwatchv1.WatcherAPI, w tally.Watcher, f tally.Figures) *shardwatchv1.WatcherStatus {
	m := &shardwatchv1.WatcherStatus{
		User: w.User, Api: api, WatchId: w.ID,
		Revision: int64(f.Revision), LagRevisions: int64(f.Lag), Lag: durationpb.New(f.Behind),
		Bytes: f.Bytes, BytesPerSecond: f.Rate, Rung: shardwatchv1.WatcherRung(f.Rung),
		Since: timestamppb.New(f.Since), Deltas: f.Deltas, Resyncs: f.Resyncs,
	}
	m.Key, m.RangeEnd = w.Range.Etcd()
	if w.Client != nil {
		m.Client = w.Client.String()
	}
	return m
}
