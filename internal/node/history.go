package node

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/history"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// historian saves the history of the caches to disk, for a restart of all nodes: as long as one
// node keeps running, it has that history in memory.
type historian struct {
	n     *Node
	store *history.Store // nil: no history is saved
	// restarted: the node had a shard map when it started, so clients may return
	// with positions from before.
	restarted bool
	started   time.Time
	begun     chan struct{} // closed once the saved history is loaded
	ended     chan struct{} // closed when run has ended
	tasks     chan func()   // see do
	hurry     atomic.Bool   // the node is stopping
	loading   atomic.Int32  // calls of Load that wait for a task

	dropped wait.Bell // wrong has new entries
	mu      sync.Mutex
	wrong   map[shard.ID]struct{} // guarded by mu; shards whose saved history is from a wrong copy
}

const (
	// saveBytesPerSecond bounds the rate of writes: raft's log is on the same disk.
	saveBytesPerSecond = 32 << 20
	// firstSave is the time from the start to the first save.
	firstSave = 2 * time.Second
	// returning is how long after its start a node may get shards back: until then it keeps and loads
	// the history of shards that it does not have. After a stop of all nodes, the shards of nodes that
	// have not returned are moved seconds after the start.
	returning = 10 * time.Minute
	// lastSave bounds the wait for the disk when the node ends.
	lastSave = 5 * time.Second
)

func newHistorian(n *Node) *historian {
	h := &historian{
		n: n, restarted: n.placement.Map() != nil, started: time.Now(), begun: make(chan struct{}), ended: make(chan struct{}),
		tasks: make(chan func()), dropped: wait.NewBell(), wrong: make(map[shard.ID]struct{}),
	}
	if n.cfg.HistoryBytes > 0 && n.cfg.DataDir != "" && n.cfg.Simulation == nil {
		h.store = history.New(history.Config{
			Dir: filepath.Join(n.cfg.DataDir, "history"), MaxBytes: n.cfg.HistoryBytes, Pace: h.pace, Logger: n.log,
		})
	}
	return h
}

// origin returns the origin of the histories of a map: cluster, etcd's cluster, and lineage.
func origin(m *shard.Map) history.Origin {
	return history.Origin{Cluster: m.ClusterID, Etcd: m.EtcdClusterID, Lineage: m.Lineage}
}

// returns reports whether the node may still get shards that it had before its restart.
func (h *historian) returns() bool { return h.restarted && time.Since(h.started) < returning }

// Load returns the saved history of shards on its first call, and while a restarted node may get
// shards back. Later the caches in memory are newer. For a restarted node, a shard without a saved
// history has an empty history: if no other node has more, etcd's log is read as far back as it goes.
// The keeper calls Load.
func (h *historian) Load(m *shard.Map, shards map[shard.ID]*shard.Shard) map[shard.ID]*cache.Past {
	var out map[shard.ID]*cache.Past
	switch {
	case !wait.Over(h.begun):
		defer close(h.begun)
		out = h.onDisk(m, shards)
	case len(shards) == 0 || !h.returns():
		return nil
	default:
		out = h.later(m, shards)
	}
	for id := range shards {
		if out[id] == nil && h.restarted {
			out[id] = &cache.Past{Floor: 1, DeltaFloor: 1}
		}
	}
	return out
}

// later is onDisk on the goroutine that uses the store. It returns an empty map if the disk hangs.
func (h *historian) later(m *shard.Map, shards map[shard.ID]*shard.Shard) map[shard.ID]*cache.Past {
	h.loading.Add(1)
	defer h.loading.Add(-1)
	ctx, cancel := context.WithTimeout(context.Background(), lastSave)
	defer cancel()
	loaded := make(chan map[shard.ID]*cache.Past, 1)
	if !h.do(ctx, func() { h.dropWrong(); loaded <- h.onDisk(m, shards) }) {
		return make(map[shard.ID]*cache.Past)
	}
	return <-loaded
}

// onDisk returns the saved history of shards.
func (h *historian) onDisk(m *shard.Map, shards map[shard.ID]*shard.Shard) map[shard.ID]*cache.Past {
	if h.store == nil || len(shards) == 0 {
		return make(map[shard.ID]*cache.Past)
	}
	began := time.Now()
	ranges := make(map[shard.ID]kv.Range)
	for id, s := range shards {
		ranges[id] = s.Range
	}
	out := h.store.Load(origin(m), ranges)
	if len(out) > 0 {
		h.n.log.Info("history restored from disk", "shards", len(out), "took", time.Since(began).Round(time.Millisecond))
	}
	return out
}

// run saves at every HistoryInterval, until ctx ends.
func (h *historian) run(ctx context.Context) error {
	defer close(h.ended)
	if !wait.For(ctx, h.begun) {
		return nil
	}
	// The first save comes soon: without it a crash loses the whole history, while etcd's log may
	// have the events after a save.
	tick := time.NewTimer(min(firstSave, h.n.cfg.HistoryInterval))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			h.save(ctx)
			tick.Reset(h.n.cfg.HistoryInterval)
		case task := <-h.tasks:
			task()
		case <-h.dropped:
			h.dropWrong()
		case <-ctx.Done():
			if h.store != nil {
				return h.close()
			}
			return nil
		}
	}
}

// close logs an error instead of returning it: it must not change the node's exit status.
func (h *historian) close() error {
	if err := h.store.Close(); err != nil {
		h.n.log.Warn("history may not be on the disk", "error", err)
	}
	return nil
}

// Drop removes the saved history of a shard whose copy was wrong: a restart would load it, and it
// would contradict etcd. The caller has already removed that copy from the node's copies, so it is
// not saved again.
func (h *historian) Drop(id shard.ID) {
	if h.store == nil {
		return
	}
	h.mu.Lock()
	h.wrong[id] = struct{}{}
	h.mu.Unlock()
	h.dropped.Wake()
}

// dropWrong removes the saved history of wrong copies. If that fails, it is retried before the
// next save, which logs the disk's error.
func (h *historian) dropWrong() {
	if h.store == nil {
		return
	}
	h.mu.Lock()
	ids := slices.Collect(maps.Keys(h.wrong))
	h.mu.Unlock()
	for _, id := range ids {
		if err := h.store.Forget(id); err != nil {
			h.n.log.Debug("the saved history of a wrong copy is not removed yet", "shard", uint64(id), "error", err)
			continue
		}
		h.mu.Lock()
		delete(h.wrong, id)
		h.mu.Unlock()
	}
}

// save writes the batches since the last save. The store logs its errors.
func (h *historian) save(ctx context.Context) {
	m := h.n.placement.Map()
	if m == nil || h.store == nil {
		return
	}
	h.dropWrong()
	o := origin(m)
	var shards []history.Shard
	for id, c := range h.n.copies.Caches() {
		shards = append(shards, history.Shard{ID: id, Range: c.Range(), Export: func() (*cache.Export, error) {
			if c.Lineage() != o.Lineage {
				return nil, cache.ErrNotReady // it will be replaced
			}
			return c.Export()
		}})
	}
	if h.store.Save(ctx, o, shards) == nil && len(shards) > 0 && !h.returns() && !h.hurry.Load() {
		h.store.Keep(shards)
	}
}

// last saves once more before the node stops. It keeps the history of shards that have moved to
// other nodes: this node may be the first to return.
func (h *historian) last(ctx context.Context) {
	h.hurry.Store(true)
	select {
	case <-h.begun:
	default:
		return // nothing to save
	}
	ctx, cancel := context.WithTimeout(ctx, lastSave)
	defer cancel()
	h.do(ctx, func() { h.save(ctx) })
}

// do runs a task on the goroutine that uses the store. It returns false if the task has not ended
// before ctx: the disk may hang.
func (h *historian) do(ctx context.Context, task func()) bool {
	done := make(chan struct{})
	select {
	case h.tasks <- func() { defer close(done); task() }:
		return wait.For(ctx, done)
	case <-h.ended:
	case <-ctx.Done():
	}
	return false
}

// pace limits the share of the disk that saving uses, unless a caller waits for the disk.
func (h *historian) pace(ctx context.Context, bytes int) error {
	if h.hurry.Load() || h.loading.Load() > 0 {
		return ctx.Err()
	}
	t := time.NewTimer(time.Duration(bytes) * time.Second / saveBytesPerSecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
