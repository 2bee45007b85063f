package etcdclock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// A restored etcd usually has the same cluster ID, member IDs and addresses as before, and a
// running watch from a revision that it has not reached is silent. It is detected by numbers that
// never decrease within one history: see kv.Mark. docs/adr/0012-lineage.md explains each number.

// lineage is the history of etcd that the client follows, and its known progress.
type lineage struct {
	mu      sync.Mutex
	number  uint64           // given by the caller; 0: none yet; guarded by mu
	mark    kv.Mark          // guarded by mu
	ended   *kv.HistoryError // why etcd no longer has it; guarded by mu
	changed wait.Signal      // of ended
	odd     time.Time        // last log of contradicting members; guarded by mu
}

// moment is the knowledge of the history before a request: an answer can only contradict that.
type moment struct {
	lineage uint64
	mark    kv.Mark
}

func (h *lineage) now() moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return moment{lineage: h.number, mark: h.mark}
}

// saw joins a mark of a lineage's history.
func (h *lineage) saw(lineage uint64, mark kv.Mark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.number == lineage && h.ended == nil {
		h.mark = h.mark.Join(mark)
	}
}

// err returns the reason why the history has ended, or nil.
func (h *lineage) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended == nil { // avoids a typed nil
		return nil
	}
	return h.ended
}

// end notes that etcd no longer has the history of a lineage. The first reason stays.
// Before a lineage is adopted, no part holds data of it, so the current history of etcd
// is accepted.
func (h *lineage) end(lineage uint64, why *kv.HistoryError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.number != lineage || h.ended != nil:
	case lineage == 0:
		h.mark = why.Is
	default:
		h.setLocked(why)
	}
}

// resume continues a history that ended because of another cluster ID, when etcd has the former ID
// again. This applies only to the cluster ID: the other numbers of a restored etcd can grow until
// they look right, while a node that reached another etcd by mistake returns to the same cluster.
func (h *lineage) resume(lineage uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.number == lineage && h.ended != nil && h.ended.Cause == kv.CauseCluster {
		h.setLocked(nil)
	}
}

func (h *lineage) setLocked(why *kv.HistoryError) {
	h.ended = why
	h.changed.Notify()
}

// Adopt makes the client follow the history of a lineage that has reached mark. Marks of another
// lineage are dropped, and its reads in flight fail. Adopting the same lineage again joins the
// marks.
func (c *Reader) Adopt(lineage uint64, mark kv.Mark) {
	h := &c.lineage
	h.mu.Lock()
	defer h.mu.Unlock()
	c.indexes.forget() // they were not compared with mark
	if h.number == lineage {
		h.mark = h.mark.Join(mark)
		return
	}
	h.number, h.mark = lineage, mark
	h.setLocked(nil)
	c.past.forget()
	if mark.Cluster != 0 {
		c.cluster.Store(mark.Cluster)
	}
}

// Known returns the adopted lineage and the mark that its history is known to have
// reached.
func (c *Reader) Known() (lineage uint64, mark kv.Mark) {
	m := c.lineage.now()
	return m.lineage, m.mark
}

// Saw joins a mark of a lineage's history that another node has read.
func (c *Reader) Saw(lineage uint64, mark kv.Mark) { c.lineage.saw(lineage, mark) }

// Retract revokes the end of a lineage's history: its mark was wrong, and is replaces it.
func (c *Reader) Retract(lineage uint64, is kv.Mark) {
	h := &c.lineage
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.number != lineage || h.ended == nil {
		return
	}
	is.Cluster = h.mark.Cluster
	h.mark = is
	h.setLocked(nil)
}

// Suspect reports that received data cannot belong to a lineage's history: err is an
// ErrOtherHistory.
func (c *Reader) Suspect(lineage uint64, err error) {
	var found *kv.HistoryError
	if !errors.As(err, &found) {
		found = &kv.HistoryError{Cause: kv.CauseContent, Was: c.lineage.now().mark, Detail: err.Error()}
	}
	c.lineage.end(lineage, found)
}

// Ended returns the adopted lineage, why etcd no longer has its history (nil: it has),
// and a channel that is closed when that changes. Until a newer lineage is adopted, all
// requests to etcd except Look and Check fail with that error.
func (c *Reader) Ended() (lineage uint64, why *kv.HistoryError, changed <-chan struct{}) {
	h := &c.lineage
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.number, h.ended, h.changed.Wait()
}

// Look is Clock with the index of raft's log, and checks whether etcd still has the
// history of the adopted lineage. If not, it returns the clock with a *kv.HistoryError.
// Callers share looks.
func (c *Reader) Look(ctx context.Context) (Clock, error) {
	s, err := c.looks.do(ctx, c.look)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.conns.Lost(err) // it accepts connections but does not answer
	}
	if err == nil && s.ended != nil {
		err = s.ended
	}
	return s.clock, err
}

// sight is the result of a look.
type sight struct {
	clock Clock
	ended *kv.HistoryError // etcd has another history
}

// errMoved reports that another lineage was adopted during a read of etcd: the answer
// may belong to either history.
var errMoved = errors.New("a new lineage has begun meanwhile")

// errDisagree reports that only some members of etcd contradict the mark, so etcd was not
// restored.
var errDisagree = errors.New("etcd's members contradict each other")

func (c *Reader) look(ctx context.Context) (sight, error) {
	before := c.lineage.now()
	clock, err := c.survey(ctx, before.mark)
	if err != nil {
		return sight{}, err
	}
	found := before.mark.Judge(clock.Mark())
	if found != nil {
		answer, agrees, err := c.surveyEach(ctx, before.mark)
		if err != nil {
			return sight{}, err
		}
		if agrees {
			c.disagree(found)
			clock, found = answer, nil
		}
	}
	return c.conclude(before, clock, found)
}

// surveyEach asks all endpoints in parallel, each by its own connection, and reports whether
// one agrees with mark, with its answer. A single member may be wrong: a member that took
// its state from another and has applied nothing since reports an old term. The first answer
// that agrees ends the calls to the others, one of which may hang. If none agrees, all have
// answered, or failed within CallTimeout.
func (c *Reader) surveyEach(ctx context.Context, mark kv.Mark) (answer Clock, agrees bool, err error) {
	token, err := c.conns.Token(ctx)
	if err != nil {
		return Clock{}, false, err
	}
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	agreeing := make(chan Clock, c.conns.Members()) // in order of arrival: the first one is complete
	_, failed := etcdconn.Each(etcdconn.WithLeader(etcdconn.WithToken(ctx, token)), c.conns, func(ctx context.Context, conn *grpc.ClientConn) (Clock, error) {
		clock, err := c.surveyOne(ctx, conn)
		if err == nil && mark.Judge(clock.Mark()) == nil {
			agreeing <- clock
			enough()
		}
		return clock, err
	})
	select {
	case answer = <-agreeing:
		return answer, true, nil
	default:
	}
	if !slices.Contains(failed, nil) {
		return Clock{}, false, etcdconn.Unavailable("check etcd's history", errors.Join(failed...))
	}
	return Clock{}, false, nil
}

func (c *Reader) surveyOne(ctx context.Context, conn *grpc.ClientConn) (Clock, error) {
	ctx, cancel := context.WithTimeout(ctx, c.conns.CallTimeout())
	defer cancel()
	clock, err := c.header(ctx, etcdserverpb.NewKVClient(conn), 0)
	if err != nil {
		return Clock{}, err
	}
	if s, err := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{}); err == nil && s.GetHeader().GetMemberId() == clock.Member {
		clock.Index = s.GetRaftIndex()
	}
	return clock, nil
}

// conclude stores the result of a look.
func (c *Reader) conclude(before moment, clock Clock, found *kv.HistoryError) (sight, error) {
	if c.lineage.now().lineage != before.lineage {
		return sight{}, etcdconn.Unavailable("check etcd's history", errMoved)
	}
	if found != nil {
		c.lineage.end(before.lineage, found)
	} else {
		c.lineage.resume(before.lineage)
		c.lineage.saw(before.lineage, clock.Mark())
	}
	_, ended, _ := c.Ended()
	return sight{clock: clock, ended: ended}, nil
}

// tellEvery is the interval between logs of a member that contradicts the others.
const tellEvery = time.Minute

// disagree logs that a member contradicts the others.
func (c *Reader) disagree(found *kv.HistoryError) {
	c.count.disagreements.Add(1)
	now := time.Now()
	c.lineage.mu.Lock()
	told := now.Sub(c.lineage.odd) < tellEvery
	if !told {
		c.lineage.odd = now
	}
	c.lineage.mu.Unlock()
	if told {
		return
	}
	c.log.Warn("a member of etcd contradicts the others, so etcd was not restored: check whether the member lags or is corrupt",
		"finding", found.Finding(), "term", found.Is.Term, "revision", found.Is.Revision)
}

// Mark returns the clock's numbers.
func (c *Clock) Mark() kv.Mark {
	return kv.Mark{Cluster: c.Cluster, Term: c.Term, Index: c.Index, Revision: c.Revision}
}

// survey reads the clock, and the index of raft's log at the process that answered: its
// committed index is not below any member's before the call. A process that has reported
// its index recently is not asked again: see indexes. known is the mark of the history
// before the call.
func (c *Reader) survey(ctx context.Context, known kv.Mark) (Clock, error) {
	var at peer.Peer
	clock, err := c.read(ctx, "check etcd's history", 0, grpc.Peer(&at))
	if err != nil {
		return Clock{}, err
	}
	if told := c.indexes.infer(at, clock); told != 0 {
		// Other members may have reported later entries. This process belongs to their history:
		// its own index was not below the mark, and it still runs, while a restored etcd is
		// another process, without a report. So its read, which began after those entries were
		// committed, waited until it had committed them, too.
		clock.Index = max(told, known.Index)
		return clock, nil
	}
	// The endpoints take turns.
	for range 2 * c.conns.Members() {
		var also peer.Peer
		var status *etcdserverpb.StatusResponse
		err := c.conns.Call(ctx, "ask for etcd's status", c.conns.ReadTimeout(), func(ctx context.Context) (err error) {
			status, err = c.conns.Maintenance.Status(ctx, &etcdserverpb.StatusRequest{}, grpc.Peer(&also))
			return err
		})
		if err != nil {
			if ctx.Err() != nil || etcdconn.IsUnavailable(err) {
				return Clock{}, err
			}
			break // not permitted: the clock alone must suffice
		}
		if connOf(at) == connOf(also) && status.GetHeader().GetMemberId() == clock.Member {
			clock.Index = status.GetRaftIndex()
			if known.Judge(clock.Mark()) == nil { // else it may belong to another history
				c.indexes.note(also, clock)
			}
			break
		}
	}
	return clock, nil
}

// connection identifies a connection by both of its addresses: it lasts for at most one run of a process.
type connection struct{ local, remote string }

// connOf returns the connection of an answer.
func connOf(p peer.Peer) connection {
	return connection{local: addr(p.LocalAddr), remote: addr(p.Addr)}
}

func addr(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// indexEvery is how often a process is asked for its index. It bounds how long a proxy
// that keeps its connections can hide that a member has restarted.
const indexEvery = 10 * time.Second

// indexes are the raft log indexes that processes of etcd have reported. While a process
// runs, its index never decreases and grows by at least one with each revision. Connections
// do not outlive their process: a restored etcd has new ones. So the index of a process that
// has reported it before follows from its revision. No index below the mark is kept.
type indexes struct {
	mu   sync.Mutex
	told map[process]report // guarded by mu
}

// process is a member of etcd at the other end of a connection.
type process struct {
	connection
	member, cluster uint64
}

// report is the index that a process has reported.
type report struct {
	index uint64
	at    time.Time // after the answer
	// revision is that of the first read that began after at, 0: none yet. All entries up
	// to index had been applied by then, so each later revision has an entry above index.
	revision kv.Revision
}

// infer returns an index that the process of a clock has committed, 0 if it has to be asked: it
// has reported none within indexEvery, or is not reached by TCP. Only TCP connections have
// distinct addresses: all of a Unix socket have the same.
func (i *indexes) infer(from peer.Peer, clock Clock) uint64 {
	if _, tcp := from.LocalAddr.(*net.TCPAddr); !tcp {
		return 0
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	id := process{connOf(from), clock.Member, clock.Cluster}
	r, ok := i.told[id]
	if !ok || clock.At.Sub(r.at) >= indexEvery {
		return 0
	}
	if r.revision == 0 && clock.At.After(r.at) {
		r.revision = clock.Revision
		i.told[id] = r
	}
	if r.revision == 0 || clock.Revision < r.revision {
		return r.index
	}
	return r.index + uint64(clock.Revision-r.revision) //nolint:gosec // not below it
}

// note stores the index that a process has reported after its clock.
func (i *indexes) note(from peer.Peer, clock Clock) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(i.told, func(_ process, r report) bool { return now.Sub(r.at) >= indexEvery })
	if i.told == nil {
		i.told = make(map[process]report)
	}
	i.told[process{connOf(from), clock.Member, clock.Cluster}] = report{index: clock.Index, at: now}
}

// forget drops all reports: they belong to another history.
func (i *indexes) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.told)
}

// Admit fails unless etcd has the history of a lineage (0: the adopted one) at some moment after
// the call: with a *kv.HistoryError, or a *kv.LineageError when it is not the adopted lineage. On
// success, data received before the call belongs to that history.
func (c *Reader) Admit(ctx context.Context, lineage uint64) error {
	adopted := c.lineage.now().lineage
	if err := c.Follows(lineage); err != nil {
		return err
	}
	if _, err := c.Look(ctx); err != nil {
		return err
	}
	if c.lineage.now().lineage != adopted {
		return etcdconn.Unavailable("check etcd's history", errMoved)
	}
	return nil
}

// Follows fails when a lineage (0: any) is not the adopted one, or has ended.
func (c *Reader) Follows(lineage uint64) error {
	if adopted := c.lineage.now().lineage; lineage != 0 && adopted != 0 && lineage != adopted {
		return &kv.LineageError{Requested: lineage, Current: adopted}
	}
	return c.lineage.err()
}

// doubt decides whether a linearizable read that contradicts the earlier mark shows another
// history or a faulty member.
func (c *Reader) doubt(ctx context.Context, deed string, found *kv.HistoryError) error {
	if _, err := c.Look(ctx); err != nil {
		return err
	}
	if c.lineage.now().mark.Judge(found.Is) == nil {
		return nil // no history is followed yet
	}
	c.disagree(found)
	if found.Cause == kv.CauseRevision {
		return etcdconn.Unavailable(deed, fmt.Errorf("%w: %s", errDisagree, found.Finding()))
	}
	return nil // the member's revision is the result that the caller needs
}
