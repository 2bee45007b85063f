package server

import (
	"context"
	"iter"
	"slices"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// The two APIs that a watch may come by.
const (
	nativeAPI = shardwatchv1.WatcherAPI_WATCHER_API_NATIVE
	etcdAPI   = shardwatchv1.WatcherAPI_WATCHER_API_ETCD
)

// sampleEvery is how often it is noted how much each watch was sent: rates are
// those of the last one or two intervals.
const sampleEvery = 5 * time.Second

// watchers returns the open watches of clients. It blocks no other caller,
// and may include some that have just ended.
func (s *Server) watchers() iter.Seq2[shardwatchv1.WatcherAPI, watchstats.Watcher] {
	return func(yield func(shardwatchv1.WatcherAPI, watchstats.Watcher) bool) {
		for w := range s.native.Watchers() {
			if !yield(nativeAPI, w) {
				return
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

// sample records the watches' messages, until ctx ends.
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

// figures returns the counts of a watch's account at a time.
func (s *Server) figures() func(w *watchstats.Watch) watchstats.Figures {
	s.mu.Lock()
	sampled := s.sampled[0]
	s.mu.Unlock()
	now, newest := time.Now(), s.cfg.Router.Newest()
	return func(w *watchstats.Watch) watchstats.Figures { return w.Figures(now, newest, sampled) }
}

// WatchSummary has the metrics of the open watches of one API.
type WatchSummary struct {
	API string
	// Modes counts the watches by how they are served; index watchstats.Mode.
	Modes map[watchstats.Mode]int64
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
		out[i].Modes = make(map[watchstats.Mode]int64)
	}
	figures := s.figures()
	for api, w := range s.watchers() {
		i, f := slices.Index(apis, api), figures(w.Watch)
		out[i].Modes[f.Mode]++
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
