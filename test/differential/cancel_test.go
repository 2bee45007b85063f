package differential_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

var cancelRounds = flag.Int("differential.cancels", 300, "`number` of cancels that a progress request follows at once, at etcd and at each node")

// A client resumes a watch after the revision of the last progress answer. So no progress answer
// may pass an event of a watch whose cancel is not answered yet. etcd lets one answer in a hundred
// overtake the answer to a cancel and the events before it; at the nodes none does.
func TestNoProgressAnswerPassesOverEvents(t *testing.T) {
	tier := theTier(t)
	sides := map[string]*grpc.ClientConn{"etcd": tier.Direct}
	for i, cc := range tier.Through {
		sides[fmt.Sprintf("node %d", i+1)] = cc
	}
	for who, cc := range sides {
		t.Run(who, func(t *testing.T) {
			r := startCancels(t, cc, tier.Direct)
			for range *cancelRounds {
				r.round()
			}
			t.Logf("%d cancels, %d progress answers: %d before the answer to the cancel, %d past an event that was not sent",
				*cancelRounds, r.answers, r.overtook, r.lost)
			if who == "etcd" {
				return
			}
			if r.overtook > 0 || r.lost > 0 {
				t.Errorf("%d answers overtook a cancel, and %d lost an event", r.overtook, r.lost)
			}
		})
	}
}

// cancels is a client that cancels watches and requests progress at once.
type cancels struct {
	t      *testing.T
	stream pb.Watch_WatchClient
	writer pb.KVClient

	answers, overtook, lost int
	open                    map[int64]*sent
	written                 []int64 // revisions with an event for every watch
	created, ended          int64   // the last created and cancelled watches
}

// sent is the revisions sent to an open watch.
type sent struct{ from, last int64 }

func startCancels(t *testing.T, cc, writer *grpc.ClientConn) *cancels {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	s, err := pb.NewWatchClient(cc).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := &cancels{t: t, stream: s, writer: pb.NewKVClient(writer), open: make(map[int64]*sent), created: -1, ended: -1}
	r.create("/b/1", "") // stays open: a stream without watches gets no progress
	return r
}

// round cancels a watch with an event in flight, and requests progress.
func (r *cancels) round() {
	r.create("/a/", "/i/")
	a, err := r.writer.Put(r.stream.Context(), &pb.PutRequest{Key: []byte("/b/1")})
	if err != nil {
		r.t.Fatal(err)
	}
	r.written = append(r.written, a.GetHeader().GetRevision())
	before := r.answers
	r.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: r.created}}})
	r.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	r.until(func() bool { return r.ended == r.created && r.answers > before })
}

// create opens a watch.
func (r *cancels) create(key, end string) {
	last := r.created
	r.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte(end)}}})
	r.until(func() bool { return r.created != last })
}

func (r *cancels) send(m *pb.WatchRequest) {
	if err := r.stream.Send(m); err != nil {
		r.t.Fatalf("send: %v", err)
	}
}

func (r *cancels) until(done func() bool) {
	for !done() {
		m, err := r.stream.Recv()
		if err != nil {
			r.t.Fatalf("receive: %v", err)
		}
		r.take(m)
	}
}

func (r *cancels) take(m *pb.WatchResponse) {
	w, revision := r.open[m.GetWatchId()], m.GetHeader().GetRevision()
	switch {
	case m.GetCreated() && !m.GetCanceled():
		r.created = m.GetWatchId()
		r.open[r.created] = &sent{from: revision + 1}
	case m.GetWatchId() == -1:
		r.answered(revision)
	case w == nil:
		if len(m.GetEvents()) == 0 || m.GetWatchId() != r.ended { // etcd may send events in flight
			r.t.Fatalf("got %v", m)
		}
	case m.GetCanceled():
		r.ended = m.GetWatchId()
		delete(r.open, r.ended)
	default:
		for _, e := range m.GetEvents() {
			w.last = e.GetKv().GetModRevision()
		}
	}
}

// answered judges a progress answer.
func (r *cancels) answered(revision int64) {
	if r.answers++; len(r.open) > 1 {
		r.overtook++
	}
	for _, w := range r.open {
		if slices.ContainsFunc(r.written, func(at int64) bool { return at >= w.from && at > w.last && at <= revision }) {
			r.lost++
		}
	}
}
