package etcd

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
)

func created(id, revision int64) *etcdserverpb.WatchResponse {
	return &etcdserverpb.WatchResponse{WatchId: id, Created: true, Header: &etcdserverpb.ResponseHeader{Revision: revision}}
}

// response returns a response to watch 7 with an event of each revision.
func response(header int64, fragment bool, revisions ...int64) *etcdserverpb.WatchResponse {
	r := &etcdserverpb.WatchResponse{WatchId: 7, Fragment: fragment, Header: &etcdserverpb.ResponseHeader{Revision: header}}
	for i, rev := range revisions {
		r.Events = append(r.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: fmt.Appendf(nil, "k%d", i), ModRevision: rev}})
	}
	return r
}

// decoded encodes and decodes a response.
func decoded(tb testing.TB, m *etcdserverpb.WatchResponse) *watchResponse {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	r := &watchResponse{}
	if err := r.decode(b); err != nil {
		tb.Fatal(err)
	}
	return r
}

// seen writes updates as words: "b5×2" is a batch of two events, "p9" progress.
func seen(updates []kv.Update) string {
	var words []string
	for _, u := range updates {
		if u.Kind == kv.UpdateBatch {
			words = append(words, fmt.Sprintf("b%d×%d", u.Batch.Revision, len(u.Batch.Events)))
		} else {
			words = append(words, fmt.Sprintf("p%d", u.Revision))
		}
	}
	return strings.Join(words, " ")
}

func TestAssembly(t *testing.T) {
	anyID := func(r *etcdserverpb.WatchResponse) *etcdserverpb.WatchResponse { r.WatchId = -1; return r }
	for _, c := range []struct {
		name string
		from int64
		in   []*etcdserverpb.WatchResponse
		want string
		err  error
	}{
		{"one revision each", 2, []*etcdserverpb.WatchResponse{created(7, 1), response(2, false, 2), response(3, false, 3, 3)}, "b2×1 b3×2", nil},
		{"header ahead of events is not progress", 2, []*etcdserverpb.WatchResponse{created(7, 5001), response(5001, false, 2, 3, 1001)}, "b2×1 b3×1 b1001×1", nil},
		{"progress", 2, []*etcdserverpb.WatchResponse{created(7, 9), response(9, false), anyID(response(12, false))}, "p9 p12", nil},
		{"progress that does not advance", 10, []*etcdserverpb.WatchResponse{created(7, 9), response(9, false), response(4, false), response(10, false), response(10, false)}, "p10", nil},
		{"progress after events", 2, []*etcdserverpb.WatchResponse{created(7, 1), response(4, false, 4), response(4, false), response(5, false)}, "b4×1 p5", nil},
		{"the announcement is not progress", 2, []*etcdserverpb.WatchResponse{created(7, 100)}, "", nil},
		{"fragments split a revision", 2, []*etcdserverpb.WatchResponse{created(7, 1), response(3, true, 2, 3, 3), response(3, true, 3), response(3, false, 3)}, "b2×1 b3×4", nil},
		{"nothing before the last fragment", 2, []*etcdserverpb.WatchResponse{created(7, 1), response(3, true, 3, 3)}, "", nil},
		{"an empty last fragment ends the revision", 2, []*etcdserverpb.WatchResponse{created(7, 1), response(3, true, 3, 3), response(3, false)}, "b3×2", nil},
		{"below the start is not wanted", 5, []*etcdserverpb.WatchResponse{created(7, 1), response(5, false, 3, 4, 5)}, "b5×1", nil},
		{"an event twice", 2, []*etcdserverpb.WatchResponse{created(7, 1), response(3, false, 3), response(3, false, 3)}, "b3×1", errProtocol},
		{"an event after progress", 2, []*etcdserverpb.WatchResponse{created(7, 1), response(9, false), response(8, false, 8)}, "p9", errProtocol},
		{"events out of order", 2, []*etcdserverpb.WatchResponse{created(7, 1), response(9, false, 4, 3)}, "", errProtocol},
		{"before the announcement", 2, []*etcdserverpb.WatchResponse{response(9, false)}, "", errProtocol},
		{"progress before the announcement", 2, []*etcdserverpb.WatchResponse{anyID(response(9, false))}, "", errProtocol},
		{"events before the announcement", 2, []*etcdserverpb.WatchResponse{anyID(response(9, false, 2))}, "", errProtocol},
		{"announced twice", 2, []*etcdserverpb.WatchResponse{created(7, 1), created(8, 1)}, "", errProtocol},
		{"of another watch", 2, []*etcdserverpb.WatchResponse{created(8, 1), response(9, false, 2)}, "", errProtocol},
		{"wants a login", 2, []*etcdserverpb.WatchResponse{{Created: true, Canceled: true, WatchId: -1, CancelReason: "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"}}, "", etcdconn.ErrToken},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAssembly(kv.Revision(c.from))
			var all []kv.Update
			var err error
			for _, r := range c.in {
				var updates []kv.Update
				if updates, err = a.add(decoded(t, r), time.Time{}); err != nil {
					break
				}
				all = append(all, updates...)
			}
			if got := seen(all); got != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %q, %v; want %q, %v", got, err, c.want, c.err)
			}
		})
	}
}

func TestAssemblyBegins(t *testing.T) {
	for _, c := range []struct {
		from, header int64
		want         bool
	}{{5, 4, true}, {5, 5, false}, {5, 6, false}} {
		a := newAssembly(kv.Revision(c.from))
		if _, err := a.add(decoded(t, created(7, c.header)), time.Time{}); err != nil || a.begun != c.want {
			t.Errorf("watch from %d, etcd at %d: begun %v, %v", c.from, c.header, a.begun, err)
		}
		if _, err := a.add(decoded(t, response(c.header, false)), time.Time{}); err != nil || !a.begun {
			t.Errorf("watch from %d, etcd at %d: not begun after a response: %v", c.from, c.header, err)
		}
	}
}

func TestAssemblyCompacted(t *testing.T) {
	a := newAssembly(5)
	for _, r := range []*etcdserverpb.WatchResponse{created(7, 9), response(9, false, 5, 6)} {
		if _, err := a.add(decoded(t, r), time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.add(decoded(t, &etcdserverpb.WatchResponse{WatchId: 7, Canceled: true, CompactRevision: 20}), time.Time{})
	var compacted *kv.CompactedError
	if !errors.As(err, &compacted) || *compacted != (kv.CompactedError{Requested: 7, Floor: 20}) {
		t.Errorf("got %v", err)
	}
}

// For any split of a history into responses and fragments, and any progress between them, the batches are the
// same. Each batch is returned once it is complete.
func TestAssemblyOfRandomCuts(t *testing.T) {
	rng := testseed.Rand(t)
	for range 300 {
		var revisions []int64 // of the events, in order
		var want []string
		rev := int64(1)
		for range rng.IntN(20) {
			rev += 1 + rng.Int64N(3)
			n := 1 + rng.IntN(5)
			for range n {
				revisions = append(revisions, rev)
			}
			want = append(want, fmt.Sprintf("b%d×%d", rev, n))
		}
		a := newAssembly(2)
		_, _ = a.add(decoded(t, created(7, 1)), time.Time{})
		var got []string
		add := func(r *etcdserverpb.WatchResponse) {
			updates, err := a.add(decoded(t, r), time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range updates {
				if u.Kind == kv.UpdateBatch {
					got = append(got, seen([]kv.Update{u}))
				} else if !sameLength(got, want, revisions, u.Revision) {
					t.Fatalf("progress %d after the batches %v of %v", u.Revision, got, want)
				}
			}
		}
		for at := 0; at < len(revisions); {
			end := at + 1 + rng.IntN(len(revisions)-at)
			for end < len(revisions) && revisions[end] == revisions[end-1] {
				end++ // a response never ends inside a revision
			}
			for at < end { // a fragment may end inside a revision
				cut := at + 1 + rng.IntN(end-at)
				add(response(revisions[end-1], cut < end, revisions[at:cut]...))
				at = cut
			}
			if rng.IntN(2) == 0 {
				add(response(revisions[end-1], false))
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

// sameLength reports whether got has one batch for each revision up to progress.
func sameLength(got, want []string, revisions []int64, progress kv.Revision) bool {
	n, last := 0, int64(0)
	for _, r := range revisions {
		if r != last && r <= int64(progress) {
			n++
		}
		last = r
	}
	return len(got) == min(n, len(want))
}
