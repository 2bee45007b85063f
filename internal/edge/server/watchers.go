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

// The two APIs of watches.
const (
	nativeAPI = shardwatchv1.WatcherAPI_WATCHER_API_NATIVE
	etcdAPI   = shardwatchv1.WatcherAPI_WATCHER_API_ETCD
)

// sampleEvery is the interval of the samples of each watch's counters: rates cover
// the last one or two intervals.
const sampleEvery = 5 * time.Second

// watchers returns the open watches of clients. It does not block other callers,
// and may include watches that have just ended.
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

// Ending counts the watches that would end if only the ranges in served, which are in key
// order, were served.
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

// sample samples the counters of all watches, until ctx ends.
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

// figures returns a function that returns the current counters of a watch.
func (s *Server) figures() func(w *watchstats.Watch) watchstats.Figures {
	s.mu.Lock()
	sampled := s.sampled[0]
	s.mu.Unlock()
	now, newest := time.Now(), s.cfg.Router.Newest()
	return func(w *watchstats.Watch) watchstats.Figures { return w.Figures(now, newest, sampled) }
}

// WatchSummary is a summary of the open watches of one API.
type WatchSummary struct {
	API string
	// Modes counts the watches by serve mode.
	Modes map[watchstats.Mode]int64
	// Lag and Behind are the Quantiles of the lags of watches, in revisions and in time.
	Lag    [3]kv.Revision
	Behind [3]time.Duration
}

// Quantiles returns the quantiles of WatchSummary: median, 99th percentile and maximum.
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
