package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/check"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// reader reads from one node and no other, and notes what an answer must be:
// what was acknowledged when the question was asked. Client packages go
// elsewhere when a node does not answer, which is just what must not happen
// here.
type reader struct {
	node  *Node
	conn  *grpc.ClientConn
	acked *ackLog
}

func newReader(n *Node, acked *ackLog) (*reader, error) {
	conn, err := n.dial()
	if err != nil {
		return nil, err
	}
	conn.Connect()
	return &reader{node: n, conn: conn, acked: acked}, nil
}

func (r *reader) close() { _ = r.conn.Close() }

// question is one read.
type question struct {
	r kv.Range
	// stale is the age that the answer may have; 0: a linearizable read.
	stale time.Duration
	// at is the exact revision to read at; 0: now.
	at kv.Revision
}

// ask asks, and returns the answer for checking.
func (r *reader) ask(ctx context.Context, q question) (check.Read, error) {
	out := check.Read{Range: q.r}
	var consistency pb.Consistency
	var bound *durationpb.Duration
	var how string
	switch {
	case q.at > 0:
		how = fmt.Sprintf("read at revision %d", q.at)
		out.At = q.at
	case q.stale > 0:
		how = fmt.Sprintf("read that may be %v old", q.stale)
		consistency, bound = pb.Consistency_CONSISTENCY_SERIALIZABLE, durationpb.New(q.stale)
		out.NotBefore = kv.Revision(r.acked.before(time.Now().Add(-q.stale)))
	default:
		how = "linearizable read"
		consistency = pb.Consistency_CONSISTENCY_LINEARIZABLE
		out.NotBefore, out.Linearizable = kv.Revision(r.acked.newest()), true
	}
	out.Name = fmt.Sprintf("%s of %v at %s", how, q.r, r.node.Name)
	cache := pb.NewCacheServiceClient(r.conn)
	key, end := q.r.Etcd()
	if q.r.IsSingle() {
		a, err := cache.Get(ctx, &pb.GetRequest{Key: key, Revision: int64(q.at), Consistency: consistency, MaxStaleness: bound}, grpc.WaitForReady(true))
		if err != nil {
			return out, err
		}
		out.Revision = kv.Revision(a.GetRevision())
		if a.GetKv() != nil {
			out.Items = append(out.Items, itemFromProto(a.GetKv()))
		}
		return out, nil
	}
	stream, err := cache.List(ctx, &pb.ListRequest{Key: key, RangeEnd: end, Revision: int64(q.at), Consistency: consistency, MaxStaleness: bound}, grpc.WaitForReady(true))
	for err == nil {
		var chunk *pb.ListResponse
		if chunk, err = stream.Recv(); err == nil {
			rev := kv.Revision(chunk.GetRevision())
			if out.Revision != 0 && out.Revision != rev {
				return out, fmt.Errorf("%s: chunks at revisions %d and %d", out.Name, out.Revision, rev)
			}
			out.Revision = rev
			for _, k := range chunk.GetKvs() {
				out.Items = append(out.Items, itemFromProto(k))
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return out, err
	}
	return out, nil
}

func itemFromProto(k *pb.KeyValue) check.Item {
	return check.Item{
		Key: string(k.GetKey()), Value: check.HashValue(k.GetValue()),
		Create: kv.Revision(k.GetCreateRevision()), Mod: kv.Revision(k.GetModRevision()), Version: k.GetVersion(), Lease: k.GetLease(),
	}
}

// answers are the reads of a while.
type answers struct {
	mu      sync.Mutex
	reads   []check.Read   // guarded by mu
	refused map[string]int // guarded by mu; by error, for people
}

func (a *answers) add(r check.Read, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.reads = append(a.reads, r)
		return
	}
	if a.refused == nil {
		a.refused = map[string]int{}
	}
	a.refused[err.Error()]++
}

// judge checks all answers against the history and forgets them. It returns
// how many there were, and what was answered instead, by error.
func (a *answers) judge(h *check.History) (checked int, refused map[string]int, broken []check.Violation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.reads {
		broken = append(broken, r.Check(h)...)
	}
	checked, refused = len(a.reads), a.refused
	a.reads, a.refused = nil, nil
	return checked, refused, broken
}

// pace says how hard to read.
type pace struct {
	// at is how many reads there are at a time, most how many each of them
	// makes in all, and every the pause between two.
	at, most int
	every    time.Duration
	// patience is how long an answer may take.
	patience time.Duration
}

// read reads from the node until stop is closed: keys and prefixes,
// linearizable, bounded, and at exact revisions that just were.
func (r *reader) read(ctx context.Context, stop <-chan struct{}, p pace, keys keyspace, seed uint64, into *answers) {
	var g sync.WaitGroup
	defer g.Wait()
	ctx, cancel := context.WithCancel(ctx)
	g.Go(func() {
		defer cancel() // nobody waits for an answer that is not needed any more
		select {
		case <-stop:
		case <-ctx.Done():
		}
	})
	for i := range p.at {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		g.Go(func() {
			for n := 0; n < p.most && pause(ctx, p.every) == nil; n++ {
				timed, cancel := context.WithTimeout(ctx, p.patience)
				answer, err := r.ask(timed, r.question(keys, rng))
				cancel()
				if ctx.Err() == nil {
					into.add(answer, err)
				}
			}
		})
	}
}

// question returns a question at random.
func (r *reader) question(keys keyspace, rng *rand.Rand) question {
	q := question{r: kv.Single(keys.any(rng))}
	if rng.IntN(4) == 0 {
		q.r = kv.Prefix(keys.prefix(rng.IntN(keys.prefixes)))
	}
	switch rng.IntN(5) {
	case 0, 1:
		q.stale = staleness
	case 2:
		q.at = kv.Revision(r.acked.newest() - rng.Int64N(20))
	}
	return q
}

// staleness is the bound that bounded reads ask for.
const staleness = 2 * time.Second
