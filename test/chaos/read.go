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

// question is one read. Stale 0 asks for a linearizable one.
type question struct {
	r     kv.Range
	stale time.Duration
}

// ask asks, and returns the answer for checking.
func (r *reader) ask(ctx context.Context, q question) (check.Read, error) {
	out := check.Read{Range: q.r, Linearizable: q.stale == 0, NotBefore: kv.Revision(r.acked.before(time.Now().Add(-q.stale)))}
	consistency, how := pb.Consistency_CONSISTENCY_LINEARIZABLE, "linearizable"
	var bound *durationpb.Duration
	if q.stale > 0 {
		consistency, bound = pb.Consistency_CONSISTENCY_SERIALIZABLE, durationpb.New(q.stale)
		how = fmt.Sprintf("serializable, at most %v old,", q.stale)
	}
	out.Name = fmt.Sprintf("%s read of %v at %s", how, q.r, r.node.Name)
	cache := pb.NewCacheServiceClient(r.conn)
	key, end := q.r.Etcd()
	if q.r.IsSingle() {
		a, err := cache.Get(ctx, &pb.GetRequest{Key: key, Consistency: consistency, MaxStaleness: bound}, grpc.WaitForReady(true))
		if err != nil {
			return out, err
		}
		out.Revision = kv.Revision(a.GetRevision())
		if a.GetKv() != nil {
			out.Items = append(out.Items, itemFromProto(a.GetKv()))
		}
		return out, nil
	}
	stream, err := cache.List(ctx, &pb.ListRequest{Key: key, RangeEnd: end, Consistency: consistency, MaxStaleness: bound}, grpc.WaitForReady(true))
	for err == nil {
		var chunk *pb.ListResponse
		if chunk, err = stream.Recv(); err == nil {
			if rev := kv.Revision(chunk.GetRevision()); out.Revision != 0 && out.Revision != rev {
				return out, fmt.Errorf("%s: chunks at revisions %d and %d", out.Name, out.Revision, rev)
			} else {
				out.Revision = rev
			}
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

// judge checks all answers against the history and forgets them.
func (a *answers) judge(h *check.History) (checked, refused int, broken []check.Violation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.reads {
		broken = append(broken, r.Check(h)...)
	}
	checked = len(a.reads)
	for _, n := range a.refused {
		refused += n
	}
	a.reads, a.refused = nil, nil
	return checked, refused, broken
}

// hammer reads from the node as fast as it answers, several at a time, until
// stop is closed: keys and prefixes, linearizable and bounded.
func (r *reader) hammer(ctx context.Context, stop <-chan struct{}, keys keyspace, seed uint64, into *answers) {
	const at, most = 6, 400 // readers, and reads of each
	var g sync.WaitGroup
	defer g.Wait()
	for i := range at {
		rng := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // reproducible
		g.Go(func() {
			for range most {
				select {
				case <-stop:
					return
				case <-ctx.Done():
					return
				default:
				}
				q := question{r: kv.Single(keys.any(rng))}
				if i%3 == 2 {
					q.r = kv.Prefix(keys.prefix(rng.IntN(keys.prefixes)))
				}
				if i%2 == 1 {
					q.stale = staleness
				}
				timed, cancel := context.WithTimeout(ctx, 20*time.Second)
				into.add(r.ask(timed, q))
				cancel()
				if pause(ctx, 5*time.Millisecond) != nil {
					return
				}
			}
		})
	}
}

// staleness is the bound that bounded reads ask for.
const staleness = 2 * time.Second
