package wire_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A Fan does not keep encodings of fanBytes or more.
const fanBytes = 64 << 10

// Regardless of earlier messages, a Fan encodes a message like a new Fan.
func TestAUsedFanEncodesLikeANewOne(t *testing.T) {
	var events []*kv.Event
	for i := range 6 { // small, with separate buffers, and too large to be kept
		size := []int{10, 3000, fanBytes}[i%3]
		events = append(events, &kv.Event{KV: item("/a", size+i, 9), Prev: item("/a", size+1, 5)})
	}
	r := testseed.Rand(t)
	flip := func() bool { return r.IntN(2) == 0 }
	var f wire.Fan
	for range 2000 {
		from := r.IntN(len(events))
		run := events[from : from+r.IntN(len(events)-from+1)]
		h := wire.Header{Cluster: 1, Member: 2, Term: uint64(r.IntN(2)), Revision: kv.Revision(1 + r.IntN(40))}
		more, prev, id := flip(), flip(), r.Int64()
		var got, want []byte
		if flip() {
			to := wire.NewEtcdRecipient(id)
			got, want = bytesOf(t, f.EtcdWatchEvents(to, h, more, run, prev)), bytesOf(t, new(wire.Fan).EtcdWatchEvents(to, h, more, run, prev))
		} else {
			to := wire.NewRecipient(id)
			got, want = bytesOf(t, f.WatchEvents(to, h.Revision, more, run, prev)), bytesOf(t, new(wire.Fan).WatchEvents(to, h.Revision, more, run, prev))
		}
		if string(got) != string(want) {
			t.Fatalf("got %x, want %x", got, want)
		}
	}
}

// Messages that are queued for a slow client do not change while others are encoded.
func TestFanMessagesStay(t *testing.T) {
	var f wire.Fan
	codec := wire.NewCodec()
	send := func(i int64) {
		e := &kv.Event{KV: item(fmt.Sprintf("/%d", i), 100, kv.Revision(i))}
		b, err := codec.Marshal(f.WatchEvents(wire.NewRecipient(i), kv.Revision(i), false, []*kv.Event{e}, false))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			var m shardwatchv1.WatchResponse
			if err := proto.Unmarshal(b.Materialize(), &m); err != nil || m.GetWatchId() != i || m.GetRevision() != i || string(m.GetEvents()[0].GetKv().GetKey()) != fmt.Sprintf("/%d", i) {
				t.Errorf("message %d has changed to %v, %v", i, &m, err)
			}
		})
	}
	for i := range int64(100) {
		send(i + 1)
	}
}

// A message for several watches equals the message for each of them, except for the recipients.
func TestFanNamesSeveral(t *testing.T) {
	var f wire.Fan
	events := []*kv.Event{{KV: item("/a", 100, 9)}, {KV: item("/b", 3000, 9)}}
	ids := []int64{1, 127, 128, 1 << 40, 3}
	alone, all := &shardwatchv1.WatchResponse{}, &shardwatchv1.WatchResponse{}
	for to, m := range map[*shardwatchv1.WatchResponse]*wire.Encoded{
		alone: f.WatchEvents(wire.NewRecipient(7), 9, true, events, true),
		all:   f.WatchEvents(wire.NewRecipients(ids), 9, true, events, true),
	} {
		if err := proto.Unmarshal(bytesOf(t, m), to); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(all.GetWatchIds(), ids) || all.GetWatchId() != 0 {
		t.Errorf("recipients %v, want %v", all.GetWatchIds(), ids)
	}
	all.WatchIds, all.WatchId = nil, 7
	if !proto.Equal(alone, all) {
		t.Errorf("got %v, want %v", all, alone)
	}
}
