package replica

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// abc is the range of the shard under test.
var abc = kv.Range{Start: "a", End: "d"}

func beginOf(lineage uint64, revision int64) *peerv1.FollowResponse {
	return &peerv1.FollowResponse{Part: &peerv1.FollowResponse_Begin{Begin: &peerv1.FollowBegin{Revision: revision, Floor: revision + 1, Lineage: lineage}}}
}

func readyNow() *peerv1.FollowResponse {
	return &peerv1.FollowResponse{Part: &peerv1.FollowResponse_End{End: &peerv1.FollowEnd{}}}
}

func putOf(key string, revision, of int64) *peerv1.FollowResponse {
	return &peerv1.FollowResponse{Revision: of, Events: []*pb.Event{{Kv: &pb.KeyValue{Key: []byte(key), ModRevision: revision, CreateRevision: 1, Version: 2}}}}
}

func fragmentOf(m *peerv1.FollowResponse) *peerv1.FollowResponse {
	m.Fragment = true
	return m
}

func stateOf(key string) *peerv1.FollowResponse {
	return &peerv1.FollowResponse{Part: &peerv1.FollowResponse_State{State: &peerv1.StateChunk{Kvs: []*pb.KeyValue{{Key: []byte(key), ModRevision: 3}}}}}
}

// A peer gets a request for the first missing revision, with the follower's lineage and range.
func TestPeerIsAskedForTheMissingEvents(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		var asked []*peerv1.FollowRequest
		b.follow = func(first *peerv1.FollowRequest, _ func(*peerv1.FollowResponse), _ grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
			asked = append(asked, proto.CloneOf(first))
			return errGone
		}
		p := &Peer{Link: NewLink(conn, nil), Shard: 7, Self: "me", RequireDirect: true}
		for _, from := range []kv.Revision{0, 1, 42} {
			for range p.Follow(t.Context(), kv.FollowRequest{Range: abc, From: from, Lineage: 3}) {
			}
		}
		if err := p.Probe(t.Context(), abc, 3); err == nil {
			t.Error("a failing peer passes the probe")
		}
		want := func(from int64, state bool) *peerv1.FollowRequest {
			return &peerv1.FollowRequest{ShardId: 7, Key: []byte("a"), RangeEnd: []byte("d"), FromRevision: from, WantState: state, WantHistory: state, Lineage: 3, Node: "me", RequireDirect: true, AcceptSeveral: from != math.MaxInt64}
		}
		for i, w := range []*peerv1.FollowRequest{want(0, true), want(1, false), want(42, false), want(math.MaxInt64, false)} {
			if i < min(3, len(asked)) { // the probe needs no progress
				w.Session, w.FollowId = asked[i].GetSession(), 1
			}
			if i >= len(asked) || i < 3 && w.GetSession() == 0 || !proto.Equal(asked[i], w) {
				t.Fatalf("request %d of %v, want %v", i, asked, w)
			}
		}
	})
}

// No update is taken from a peer whose answer is of another lineage, nor after its answer contradicts itself.
func TestPeerThatIsWrongIsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		answer []*peerv1.FollowResponse
		taken  []kv.UpdateKind
		bad    func(error) bool
	}{
		"another lineage": {
			[]*peerv1.FollowResponse{beginOf(4, 10), readyNow(), putOf("a", 11, 11)},
			nil,
			func(err error) bool {
				var l *kv.LineageError
				return errors.As(err, &l) && l.Requested == 3 && l.Current == 4
			},
		},
		"no lineage": {
			[]*peerv1.FollowResponse{beginOf(0, 10), readyNow()},
			nil,
			func(err error) bool { return errors.As(err, new(*kv.LineageError)) },
		},
		"an event of another revision": {
			[]*peerv1.FollowResponse{beginOf(3, 10), readyNow(), putOf("a", 11, 11), putOf("b", 13, 12)},
			[]kv.UpdateKind{kv.UpdateBegin, kv.UpdateReady, kv.UpdateBatch},
			func(err error) bool { return errors.Is(err, errImplausible) },
		},
		"an event of another shard": {
			[]*peerv1.FollowResponse{beginOf(3, 10), readyNow(), putOf("d", 11, 11)},
			[]kv.UpdateKind{kv.UpdateBegin, kv.UpdateReady},
			func(err error) bool { return errors.Is(err, errImplausible) },
		},
		"a key of another shard": {
			[]*peerv1.FollowResponse{beginOf(3, 10), stateOf("c"), stateOf("e")},
			[]kv.UpdateKind{kv.UpdateBegin, kv.UpdateState},
			func(err error) bool { return errors.Is(err, errImplausible) },
		},
		"a revision within another": {
			[]*peerv1.FollowResponse{beginOf(3, 10), readyNow(), fragmentOf(putOf("a", 11, 11)), putOf("a", 12, 12)},
			[]kv.UpdateKind{kv.UpdateBegin, kv.UpdateReady},
			func(err error) bool {
				return err != nil && strings.Contains(err.Error(), "revision 12 in the middle of revision 11")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
				b.follow = func(_ *peerv1.FollowRequest, send func(*peerv1.FollowResponse), s grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
					for _, m := range c.answer {
						send(m)
					}
					<-s.Context().Done()
					return s.Context().Err()
				}
				p := &Peer{Link: NewLink(conn, nil), Shard: 7}
				var taken []kv.UpdateKind
				var bad error
				for u, err := range p.Follow(t.Context(), kv.FollowRequest{Range: abc, From: 11, Lineage: 3}) {
					if err != nil {
						bad = err
						break
					}
					if taken = append(taken, u.Kind); len(taken) > len(c.taken) {
						break // the next update may never arrive
					}
				}
				if !slices.Equal(taken, c.taken) || !c.bad(bad) {
					t.Errorf("updates %v, want %v; ended with %v", taken, c.taken, bad)
				}
			})
		})
	}
}

// A peer passes the probe if its data is known to be at most two seconds old and of our lineage. A peer without a
// connection to etcd also answers.
func TestProbe(t *testing.T) {
	for i, c := range []struct {
		lineage uint64
		age     *durationpb.Duration
		ok      bool
		stale   bool
	}{
		{3, durationpb.New(0), true, false},
		{3, durationpb.New(tooOld), true, false},
		{3, durationpb.New(tooOld + time.Nanosecond), false, true},
		{3, durationpb.New(time.Hour), false, true},
		{3, nil, false, true},
		{4, durationpb.New(0), false, false},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
				b.follow = func(_ *peerv1.FollowRequest, send func(*peerv1.FollowResponse), s grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
					begin := beginOf(c.lineage, math.MaxInt64-1)
					begin.GetBegin().Age = c.age
					send(begin)
					<-s.Context().Done()
					return s.Context().Err()
				}
				p := &Peer{Link: NewLink(conn, nil), Shard: 7}
				err := p.Probe(t.Context(), abc, 3)
				if (err == nil) != c.ok || errors.Is(err, ErrStale) != c.stale {
					t.Errorf("%+v: the probe returns %v", c, err)
				}
			})
		})
	}
}

// A peer whose answer has no beginning does not pass the probe.
func TestProbeWithoutABeginning(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		b.follow = func(_ *peerv1.FollowRequest, send func(*peerv1.FollowResponse), _ grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
			send(readyNow())
			return nil
		}
		if err := (&Peer{Link: NewLink(conn, nil), Shard: 7}).Probe(t.Context(), abc, 3); !errors.Is(err, kv.ErrMalformed) {
			t.Error(err)
		}
	})
}
