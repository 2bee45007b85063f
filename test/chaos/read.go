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
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// reader reads from one node only, by one API, and records the newest acknowledged revision at the
// time of each request, which the answer must have reached. It uses no client package, because
// those move to another node if a node does not answer.
type reader struct {
	api   string
	node  *Node
	conn  *grpc.ClientConn
	acked *ackLog
}

func newReader(api string, n *Node, acked *ackLog) (*reader, error) {
	conn, err := n.dial()
	if err != nil {
		return nil, err
	}
	conn.Connect()
	return &reader{api: api, node: n, conn: conn, acked: acked}, nil
}

func (r *reader) close() { _ = r.conn.Close() }

// question is one read.
type question struct {
	r kv.Range
	// stale is the permitted age of the answer; 0: a linearizable read.
	stale time.Duration
	// at is the exact revision to read at; 0: now.
	at kv.Revision

	// Only for etcd's API.
	limit     int
	countOnly bool
	streamed  bool
}

// ask sends the question, and returns the answer for checking.
func (r *reader) ask(ctx context.Context, q question) (answer, error) {
	out := answer{api: r.api}
	out.Range, out.Limit = q.r, q.limit
	var how string
	switch {
	case q.at > 0:
		how = fmt.Sprintf("read at revision %d", q.at)
		out.At, out.notBefore = q.at, kv.Revision(r.acked.newest())
	case q.stale > 0:
		how = fmt.Sprintf("read that may be %v old", q.stale)
		out.NotBefore = kv.Revision(r.acked.before(time.Now().Add(-q.stale)))
	default:
		how = "linearizable read"
		out.NotBefore, out.Linearizable = kv.Revision(r.acked.newest()), true
	}
	out.Name = fmt.Sprintf("%s %s of %v at %s", r.api, how, q.r, r.node.Name)
	if r.api == Etcd {
		return out, r.askEtcd(ctx, q, &out)
	}
	return out, r.askNative(ctx, q, &out)
}

// askNative sends a question by the native API.
func (r *reader) askNative(ctx context.Context, q question, out *answer) error {
	var consistency pb.Consistency
	var bound *durationpb.Duration
	switch {
	case q.stale > 0:
		consistency, bound = pb.Consistency_CONSISTENCY_SERIALIZABLE, durationpb.New(q.stale)
	case q.at == 0:
		consistency = pb.Consistency_CONSISTENCY_LINEARIZABLE
	}
	cache := pb.NewCacheServiceClient(r.conn)
	key, end := q.r.Etcd()
	if q.r.IsSingle() {
		a, err := cache.Get(ctx, &pb.GetRequest{Key: key, Revision: int64(q.at), Consistency: consistency, MaxStaleness: bound}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		out.Revision = kv.Revision(a.GetRevision())
		if a.GetKv() != nil {
			out.Items = append(out.Items, itemFromProto(a.GetKv()))
		}
		return nil
	}
	stream, err := cache.List(ctx, &pb.ListRequest{Key: key, RangeEnd: end, Revision: int64(q.at), Consistency: consistency, MaxStaleness: bound}, grpc.WaitForReady(true))
	for err == nil {
		var chunk *pb.ListResponse
		if chunk, err = stream.Recv(); err == nil {
			rev := kv.Revision(chunk.GetRevision())
			if out.Revision != 0 && out.Revision != rev {
				return fmt.Errorf("%s: chunks at revisions %d and %d", out.Name, out.Revision, rev)
			}
			out.Revision = rev
			for _, k := range chunk.GetKvs() {
				out.Items = append(out.Items, itemFromProto(k))
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func itemFromProto(k *pb.KeyValue) check.Item {
	return check.Item{
		Key: string(k.GetKey()), Value: check.HashValue(k.GetValue()),
		Create: kv.Revision(k.GetCreateRevision()), Mod: kv.Revision(k.GetModRevision()), Version: k.GetVersion(), Lease: k.GetLease(),
	}
}

// pace is the load of the readers.
type pace struct {
	// at is the number of concurrent reads, most the limit of reads by each, and every the pause
	// between two.
	at, most int
	every    time.Duration
	// patience bounds the wait for an answer.
	patience time.Duration
}

// read reads from the node until stop is closed: keys and prefixes; linearizable, bounded, and at
// recent exact revisions.
func (r *reader) read(ctx context.Context, stop <-chan struct{}, p pace, keys keyspace, seed uint64, into *answers) {
	var g sync.WaitGroup
	defer g.Wait()
	ctx, cancel := context.WithCancel(ctx)
	g.Go(func() {
		defer cancel() // do not wait for an answer that is no longer needed
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

// question returns a random question.
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
	if r.api == Etcd {
		q.asOfEtcd(keys, rng)
	}
	return q
}

// staleness is the bound in bounded reads; etcdStaleness is --max-staleness, the nodes' bound for
// requests that cannot set one.
const (
	staleness     = 2 * time.Second
	etcdStaleness = 5 * time.Second
)
