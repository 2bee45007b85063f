package lineage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/files/durable"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Keeper restricts the data that the node serves to one history of etcd. Package etcd
// detects that the history has changed. From then on, the node serves no data of the old
// history, even if other nodes have not detected it, and asks the voters to begin the
// next lineage, in which every node reloads. See docs/adr/0012-lineage.md.
type Keeper struct {
	cfg Config
	// over is the reason why the node serves no data; nil: it serves.
	over    atomic.Pointer[kv.HistoryError]
	changed wait.Signal // signals changes of over

	mu     sync.Mutex
	number uint64             // current lineage; 0: none yet; guarded by mu
	known  bool               // this node has read etcd in it, with the same --etcd; guarded by mu
	begun  map[kv.Cause]int64 // lineages begun since the start of the node; guarded by mu

	// Owned by run.
	waited  string           // the last logged reason to wait
	doubted *kv.HistoryError // the finding that is being confirmed
	since   time.Time        // start of the confirmation

	// Owned by keep.
	saved   saved
	unsaved bool // a failed save of the mark was logged
}

// saved is the part of a lineage that survives restarts of the node: without it, a
// restore of etcd while no node runs would go unnoticed.
type saved struct {
	Lineage   uint64  `json:"lineage"`
	Endpoints string  `json:"endpoints"`
	Mark      kv.Mark `json:"mark"`
}

// Intervals and timeouts of the lineage.
const (
	saveMarkEvery = 2 * time.Second
	renewEvery    = 300 * time.Millisecond // the interval between attempts to begin a new lineage
	renewTimeout  = 3 * time.Second
	askTimeout    = time.Second
	lookTimeout   = 1500 * time.Millisecond
	// votePatience is how long the only node that has detected a restore waits for the
	// reports of others.
	votePatience = 2 * time.Second
	// freshView bounds the age at which another node's look at etcd counts.
	freshView = 3 * time.Second
)

// New returns a Keeper that does nothing yet.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg, begun: make(map[kv.Cause]int64)} }

// Refusal returns why the node serves no data; nil: it serves.
func (l *Keeper) Refusal() *kv.HistoryError { return l.over.Load() }

// Changed returns a channel that is closed when Refusal changes.
func (l *Keeper) Changed() <-chan struct{} { return l.changed.Wait() }

// Run follows the lineage of the map, and begins the next lineage when its history has
// ended.
func (l *Keeper) Run(ctx context.Context) error {
	// A slow disk must not delay the detection of a restore.
	var keeping sync.WaitGroup
	defer keeping.Wait()
	keeping.Go(func() { l.keep(ctx) })
	for {
		m, moved := l.cfg.Placement.Watch()
		if m != nil {
			l.Enter(m)
		}
		_, why, turned := l.Refresh()
		var again <-chan time.Time
		if why != nil && m != nil {
			l.renew(ctx, m, why)
			again = time.After(renewEvery)
		}
		select {
		case <-moved:
		case <-turned:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// keep saves the mark until ctx ends, and then once more.
func (l *Keeper) keep(ctx context.Context) {
	tick := time.NewTimer(beat.Until(saveMarkEvery))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tick.Reset(beat.Until(saveMarkEvery))
			l.save()
		case <-ctx.Done():
			l.save()
			return
		}
	}
}

// Enter makes the etcd client follow the history of the map's lineage, if that is new
// here. It is called before shards are loaded.
func (l *Keeper) Enter(m *shard.Map) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Lineage <= l.number {
		return
	}
	was, err := loadMark(l.cfg.File)
	if err != nil {
		l.cfg.Logger.Warn("etcd's revision at the last stop is unknown: a restore of etcd since then may go unnoticed", "error", err)
	}
	mark := kv.Mark{}
	if o := m.Origin; o != nil {
		mark = o.Is
		attrs := []any{"lineage", m.Lineage, "cause", string(o.Cause), "reason", o.Reason, "found_by", string(o.Node), "at", o.At}
		switch {
		case l.number != 0:
			l.begun[o.Cause]++
			l.cfg.Logger.Warn("a new lineage has begun: all shards are reloaded", attrs...)
		case was.Lineage != 0 && was.Lineage < m.Lineage:
			l.cfg.Logger.Warn("a new lineage began while this node was down: all shards are reloaded", attrs...)
		default: // this node starts in it
			l.cfg.Logger.Info("the lineage is not the first one", attrs...)
		}
	}
	mark.Cluster = m.EtcdClusterID
	l.number, l.known = m.Lineage, false
	if was.Lineage == m.Lineage && was.Mark.Cluster == m.EtcdClusterID {
		mark = mark.Join(was.Mark)
		l.known = was.Endpoints == l.cfg.Etcd.Endpoints()
	}
	l.cfg.Etcd.Adopt(m.Lineage, mark)
	l.cfg.Forget()
	l.over.Store(nil)
	l.changed.Notify()
}

// Refresh updates over, and returns the results of [Etcd.Ended].
func (l *Keeper) Refresh() (number uint64, why *kv.HistoryError, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	number, why, changed = l.cfg.Etcd.Ended()
	if l.over.Swap(why) == why {
		return number, why, changed
	}
	l.changed.Notify()
	if why == nil {
		l.cfg.Logger.Warn("etcd has its previous history again: serving resumes", "lineage", number)
	} else {
		l.cfg.Logger.Error("etcd has a different history: the old one is no longer served",
			"lineage", number, "cause", string(why.Cause), "finding", why.Finding())
	}
	return number, why, changed
}

// Serving reports whether the node serves data.
func (l *Keeper) Serving() bool { return l.over.Load() == nil }

// Serves reports whether data that was loaded in a lineage may be served.
func (l *Keeper) Serves(number uint64) bool {
	at, why, _ := l.Refresh()
	return at == number && why == nil
}

// Read notes that etcd was read and has the history of the lineage.
func (l *Keeper) Read() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = true
}

// WrongCluster fails when etcd has another cluster ID than the served one, and this
// node has never read the served one: then --etcd is wrong.
func (l *Keeper) WrongCluster() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	why := l.over.Load() // of the same lineage as known
	if why == nil || why.Cause != kv.CauseCluster || l.known {
		return nil
	}
	return fmt.Errorf("--etcd points to etcd cluster %x, but this cache cluster serves etcd cluster %x: check --etcd, or use an empty --data-dir and --join for another cluster; if etcd was moved there, run against the running nodes: cachectl lineage bump --accept-cluster-id %x",
		why.Is.Cluster, why.Was.Cluster, why.Is.Cluster)
}

// renew asks the voters to begin the next lineage, once.
func (l *Keeper) renew(ctx context.Context, m *shard.Map, why *kv.HistoryError) {
	switch why.Cause {
	case kv.CauseCluster:
		if !l.agreed(ctx, why.Is.Cluster) {
			return
		}
	case kv.CauseRevision, kv.CauseTerm, kv.CauseIndex:
		if !l.confirmed(ctx, m.Lineage, why) {
			return
		}
	case kv.CauseContent, kv.CauseOperator:
	}
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	_, err := l.cfg.Placement.Propose(ctx, shard.Command{IfVersion: m.Version, Change: shard.Renew{
		Lineage: m.Lineage, EtcdClusterID: cmp.Or(why.Is.Cluster, m.EtcdClusterID), Origin: shard.Origin{
			Cause: why.Cause, Reason: why.Finding(), Node: l.cfg.Self, At: time.Now().UTC(), Was: why.Was, Is: why.Is,
		},
	}})
	if err != nil && !errors.Is(err, shard.ErrRefused) { // refused: another node was first, or the map has changed
		l.wait("the voters cannot begin a new lineage: until they can, reads and watches are refused", err)
	}
}

// wait logs why there is no new lineage yet, once.
func (l *Keeper) wait(what string, err error) {
	if l.waited == what {
		return
	}
	l.waited = what
	l.cfg.Logger.Warn(what, "error", err)
}

// errNotAgreed reports that only some nodes see the other cluster.
var errNotAgreed = errors.New("if etcd was replaced on purpose: cachectl lineage bump --accept-cluster-id")

// agreed reports whether most of the nodes see the same other cluster at their --etcd
// as this one: a single misdirected node must not change the lineage of all.
func (l *Keeper) agreed(ctx context.Context, cluster uint64) bool {
	l.mu.Lock()
	known := l.known
	l.mu.Unlock()
	if !known {
		return false // --etcd is wrong: the node ends
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var all sync.WaitGroup
	var agree atomic.Int64
	nodes := int64(0)
	for _, m := range l.cfg.Members() {
		if m.State == shard.Left {
			continue
		}
		nodes++
		if m.Name == l.cfg.Self {
			agree.Add(1)
			continue
		}
		all.Go(func() {
			s, err := l.cfg.StatusOf(ctx, m.Name)
			if err == nil && s.GetEtcdClusterId() == ClusterName(cluster) && s.GetEtcdAge().AsDuration() < freshView {
				agree.Add(1)
			}
		})
	}
	all.Wait()
	if most(agree.Load(), nodes) {
		return true
	}
	l.wait(fmt.Sprintf("etcd's cluster ID has changed to %x here, but not for most of the %d nodes: reads and watches are refused here", cluster, nodes), errNotAgreed)
	return false
}

// most reports whether some are more than half of all.
func most(some, all int64) bool { return 2*some > all }

// confirmed reports whether etcd was certainly restored, after a number went back here:
// one wrong byte in this node's mark looks the same. It needs a second witness: another
// node that has detected it, too, or a cached key that differs in etcd. If others have
// looked at etcd since and found their history, and no key contradicts it, the mark of
// this node was wrong, and it continues with etcd's history.
func (l *Keeper) confirmed(ctx context.Context, number uint64, why *kv.HistoryError) bool {
	if l.doubted != why {
		l.doubted, l.since = why, time.Now()
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	agree, deny := l.poll(ctx, number)
	if witnessed(agree, deny, time.Since(l.since)) {
		return true
	}
	wrong, sure := l.cfg.Testify(ctx, why.Is.Revision)
	if wrong > 0 {
		return true
	}
	if deny > 0 && sure {
		l.cfg.Logger.Error("this node's view of etcd was wrong and is dropped: other nodes and the cached keys contradict it",
			"finding", why.Finding(), "nodes", deny)
		l.cfg.Etcd.Retract(number, why.Is)
	}
	return false
}

// witnessed reports whether the other nodes make a restore certain that this node has suspected
// for the time doubted: one has detected it, too, or none denies it and votePatience has passed.
func witnessed(agree, deny int64, doubted time.Duration) bool {
	return agree > 0 || deny == 0 && doubted > votePatience
}

// stance returns the verdict of another node's status on a lineage that has been doubted for a
// time: its history has ended, or a look at etcd since then shows that it has not.
func stance(s *shardwatchv1.StatusResponse, lineage uint64, doubted time.Duration) (agrees, denies bool) {
	switch {
	case s.GetLineage() != lineage:
		return false, false
	case s.GetRefusal() != "":
		return true, false
	}
	return false, s.GetEtcdAge() != nil && s.GetEtcdAge().AsDuration() < doubted
}

// poll returns how many other nodes have found that etcd's history has ended, and how
// many have looked at etcd after this node and found that it has not.
func (l *Keeper) poll(ctx context.Context, number uint64) (agree, deny int64) {
	var all sync.WaitGroup
	var yes, no atomic.Int64
	for _, m := range l.cfg.Members() {
		if m.State == shard.Left || m.Name == l.cfg.Self {
			continue
		}
		all.Go(func() {
			s, err := l.cfg.StatusOf(ctx, m.Name)
			if err != nil {
				return
			}
			agrees, denies := stance(s, number, time.Since(l.since))
			yes.Add(telemetry.Bool(agrees))
			no.Add(telemetry.Bool(denies))
		})
	}
	all.Wait()
	return yes.Load(), no.Load()
}

// ClusterName is an etcd cluster's ID as etcdctl prints it.
func ClusterName(id uint64) string { return fmt.Sprintf("%x", id) }

// BumpLineage implements server.Lineage.
func (l *Keeper) BumpLineage(ctx context.Context, ended uint64, reason string, accept uint64) (uint64, error) {
	is, err := l.present(ctx)
	if err != nil && accept == 0 {
		return 0, err
	}
	for {
		m, moved := l.cfg.Placement.Watch()
		switch {
		case m == nil:
			return 0, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "this node has no shard map yet"}
		case m.Lineage != ended:
			return 0, &kv.LineageError{Requested: ended, Current: m.Lineage}
		case accept != 0 && accept != is.Cluster:
			is = kv.Mark{Cluster: accept} // the operator will point the nodes there
		case accept == 0 && is.Cluster != m.EtcdClusterID:
			return 0, &kv.InvalidError{Field: "etcd_cluster_id", Reason: fmt.Sprintf(
				"etcd's cluster ID is now %x, but %x is served: pass --accept-cluster-id %x if that is intended", is.Cluster, m.EtcdClusterID, is.Cluster)}
		}
		_, was := l.cfg.Etcd.Known()
		_, err := l.cfg.Placement.Propose(ctx, shard.Command{IfVersion: m.Version, Change: shard.Renew{
			Lineage: ended, EtcdClusterID: is.Cluster,
			Origin: shard.Origin{Cause: kv.CauseOperator, Reason: reason, Node: l.cfg.Self, At: time.Now().UTC(), Was: was, Is: is},
		}})
		if err != nil && !errors.Is(err, shard.ErrRefused) {
			return 0, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "begin a new lineage: " + err.Error()}
		}
		if err == nil {
			return ended + 1, nil
		}
		select { // the map has changed
		case <-moved:
		case <-time.After(renewEvery):
		case <-ctx.Done():
			return 0, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "begin a new lineage: " + err.Error()}
		}
	}
}

// present returns etcd's current mark, in any history.
func (l *Keeper) present(ctx context.Context) (kv.Mark, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	now, err := l.cfg.Etcd.Look(ctx)
	if err != nil && !errors.Is(err, kv.ErrOtherHistory) {
		return kv.Mark{}, &kv.UnavailableError{Why: kv.EtcdUnavailable, RetryAfter: time.Second, Detail: fmt.Sprintf("begin a new lineage: %v", err)}
	}
	return now.Mark(), nil
}

// save stores the mark of the lineage durably: after a crash of the machine, which may
// be the cause of a restore of etcd, only the file shows the restore.
func (l *Keeper) save() {
	number, mark := l.cfg.Etcd.Known()
	now := saved{Lineage: number, Endpoints: l.cfg.Etcd.Endpoints(), Mark: mark}
	l.mu.Lock()
	known := l.known
	l.mu.Unlock()
	if l.cfg.File == "" || number == 0 || !known || now == l.saved {
		return
	}
	err := saveMark(l.cfg.File, now)
	if err == nil {
		l.saved = now
	} else if !l.unsaved {
		l.cfg.Logger.Warn("etcd's revision could not be saved: a restore of etcd while no node runs may go unnoticed", "error", err)
	}
	l.unsaved = err != nil
}

// The file of a mark has a magic, the xxhash of the rest (8 bytes, big-endian), and
// JSON.
const markMagic = "shardwatch mark 1\n"

var errMarkFile = errors.New("the file is truncated or was changed")

// loadMark returns the zero value if there is no file.
func loadMark(path string) (saved, error) {
	var out saved
	if path == "" {
		return out, nil
	}
	b, err := os.ReadFile(path) //nolint:gosec // the operator names the data directory
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("read the saved state of etcd: %w", err)
	}
	rest, ok := bytes.CutPrefix(b, []byte(markMagic))
	if !ok || len(rest) < 8 || binary.BigEndian.Uint64(rest) != xxhash.Sum64(rest[8:]) {
		return out, fmt.Errorf("read %s: %w", path, errMarkFile)
	}
	if err := json.Unmarshal(rest[8:], &out); err != nil {
		return out, fmt.Errorf("read %s: %w", path, err)
	}
	return out, nil
}

// saveMark replaces the file.
func saveMark(path string, s saved) error {
	body, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("save the state of etcd: %w", err)
	}
	b := binary.BigEndian.AppendUint64([]byte(markMagic), xxhash.Sum64(body))
	if err := durable.WriteFile(path, append(b, body...)); err != nil {
		return fmt.Errorf("save the state of etcd: %w", err)
	}
	return nil
}
