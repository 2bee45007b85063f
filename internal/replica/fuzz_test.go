package replica

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Any input from another node is rejected, or decodes to updates whose keys are in the range and whose revisions
// are complete.
func FuzzFollowResponse(f *testing.F) {
	event := func(key string, revision int64) *shardwatchv1.Event {
		return &shardwatchv1.Event{Kv: &shardwatchv1.KeyValue{Key: []byte(key), ModRevision: revision}}
	}
	add := func(all ...*peerv1.FollowResponse) {
		var b []byte
		for _, m := range all {
			one, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			b = protowire.AppendBytes(b, one)
		}
		f.Add(b)
	}
	state := &peerv1.StateChunk{Kvs: []*shardwatchv1.KeyValue{{Key: []byte("a"), ModRevision: 3}}, Deleted: [][]byte{[]byte("b")}}
	add(&peerv1.FollowResponse{Part: &peerv1.FollowResponse_Begin{Begin: &peerv1.FollowBegin{Revision: 7, Floor: 2}}},
		&peerv1.FollowResponse{Part: &peerv1.FollowResponse_State{State: state}},
		&peerv1.FollowResponse{Part: &peerv1.FollowResponse_Tombstones{Tombstones: &peerv1.Tombstones{Tombstones: []*peerv1.Tombstone{{Key: []byte("c"), Revision: 4}}}}},
		&peerv1.FollowResponse{Part: &peerv1.FollowResponse_End{}})
	add(&peerv1.FollowResponse{Revision: 8, Fragment: true, Events: []*shardwatchv1.Event{event("a", 8)}},
		&peerv1.FollowResponse{Revision: 8, Events: []*shardwatchv1.Event{event("b", 8)}},
		&peerv1.FollowResponse{Revision: 9, History: true, Events: []*shardwatchv1.Event{event("z", 9)}})
	add(&peerv1.FollowResponse{Part: &peerv1.FollowResponse_State{}}, &peerv1.FollowResponse{})
	add(&peerv1.FollowResponse{Revision: 9, Several: true, Events: []*shardwatchv1.Event{event("a", 8), event("b", 8), event("a", 9)}})
	rng := kv.Range{Start: "a", End: "m"}
	f.Fuzz(func(t *testing.T, b []byte) {
		var assembling kv.Batch
		for len(b) > 0 {
			one, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return
			}
			b = b[n:]
			var m peerv1.FollowResponse
			if proto.Unmarshal(one, &m) != nil {
				return
			}
			all, err := decode(&m, &assembling)
			for i := range all {
				if err == nil {
					err = plausible(&all[i], rng)
				}
			}
			if err != nil {
				return // the stream ends
			}
			for i := range all {
				taken(t, &all[i], rng)
			}
		}
	})
}

// taken fails if an accepted update has keys of another range, or events of another revision.
func taken(t *testing.T, u *kv.Update, rng kv.Range) {
	within := func(key string) {
		if !rng.Contains(key) {
			t.Fatalf("%v has key %q", u.Kind, key)
		}
	}
	for _, item := range u.KVs {
		within(string(item.Key()))
	}
	for i := range u.Batch.Events {
		e := &u.Batch.Events[i]
		if within(string(e.KV.Key())); e.KV.ModRevision() != u.Revision {
			t.Fatalf("an event of revision %d in a batch of revision %d", e.KV.ModRevision(), u.Revision)
		}
	}
	if (u.Kind == kv.UpdateBatch || u.Kind == kv.UpdateHistory) && (u.Revision <= 0 || u.Batch.Revision != u.Revision || len(u.Batch.Events) == 0) {
		t.Fatalf("%+v", u)
	}
}

// Any report of another node is rejected, or describes a part of the history that ends at a revision.
func FuzzBeatResponse(f *testing.F) {
	add := func(m *peerv1.BeatResponse) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(&peerv1.BeatResponse{PongNanos: 3, EtcdRevision: 7, Lineage: 1})
	add(&peerv1.BeatResponse{Progress: 9, FollowIds: []uint64{1, 2}, Behind: []int64{0, 3}, Quiet: []int64{0, 6}})
	add(&peerv1.BeatResponse{Progress: 9, FollowIds: []uint64{1}, Behind: []int64{-1}, Quiet: []int64{10}})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m peerv1.BeatResponse
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		n := 0
		err := reported(&m, func(_ uint64, q quiet) {
			if n++; q.since < 0 || q.since > q.upTo || q.upTo <= 0 || q.upTo > kv.Revision(m.GetProgress()) {
				t.Fatalf("accepted the part %+v of the report %v", q, &m)
			}
		})
		if err == nil && n != len(m.GetFollowIds()) {
			t.Fatalf("%d parts of the report %v", n, &m)
		}
	})
}
