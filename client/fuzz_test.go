package client

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// For all messages of a server, the resulting updates are in order, have only keys of the
// requested range, and their units have each key once.
func FuzzAssembler(f *testing.F) {
	add := func(mode uint8, all ...*pb.WatchResponse) {
		var b []byte
		for _, m := range all {
			one, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			b = protowire.AppendBytes(b, one)
		}
		f.Add(b, mode)
	}
	add(0, events(11, false, "a"), events(12, true, "a"), events(12, false, "b"), progress(15))
	add(0, unit(10, 20, "b", first), unit(0, 20, "a -d", middle), unit(0, 20, "-c", last), events(21, false, "a"))
	add(0, unit(0, 20, "a b", resync, first), unit(0, 20, "c", resync, last))
	add(1, state(20, true, false, "a"), state(20, false, true, "b"), unit(20, 30, "a"))
	add(2, unit(10, 20, "a", conflated), unit(20, 30, "-a", conflated))
	add(3, events(11, false, "a"), unit(10, 20, "a"))
	f.Fuzz(func(t *testing.T, b []byte, mode uint8) {
		a := assembler{rng: Prefix("a"), maxUnit: 10_000}
		switch mode % 4 {
		case 0:
			a.positioned, a.position, a.history = true, 10, history{lineage: 1}
		case 1:
			a.wantState = true
		case 2:
			a.conflate, a.positioned, a.position, a.history = 1, true, 10, history{lineage: 1}
		case 3:
			a.noResync, a.rng = true, Range{}
		}
		a.begin()
		if err := a.start(&pb.Created{Revision: 10, Lineage: 1}); err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 {
			one, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return
			}
			b = b[n:]
			var m pb.WatchResponse
			if proto.Unmarshal(one, &m) != nil {
				return
			}
			before, known := a.position, a.comparable()
			u, whole, err := a.step(&nodes.Response{WatchResponse: &m})
			if err != nil {
				if whole || a.position != before {
					t.Fatalf("got %v with %+v at %d", err, u, a.position)
				}
				if !errors.Is(err, outcome.ErrProtocol) && !errors.Is(err, outcome.ErrBehind) && !errors.Is(err, ErrTooBig) {
					t.Fatalf("unexpected error: %v", err)
				}
				return
			}
			if a.position < before && known {
				t.Fatalf("the position moved from %d back to %d", before, a.position)
			}
			if !whole {
				continue
			}
			if u.Revision != a.position {
				t.Fatalf("%v at %d, the position is %d", u.Kind, u.Revision, a.position)
			}
			var keys [][]byte
			for _, e := range u.Events {
				if !a.rng.has(e.KV.Key) || len(e.KV.Key) == 0 {
					t.Fatalf("key %q", e.KV.Key)
				}
			}
			for _, kv := range u.KVs {
				keys = append(keys, kv.Key)
			}
			keys = append(keys, u.Deleted...)
			slices.SortFunc(keys, bytes.Compare)
			for i, key := range keys {
				if !a.rng.has(key) || i > 0 && bytes.Equal(key, keys[i-1]) {
					t.Fatalf("key %q in %v", key, u.Kind)
				}
			}
		}
	})
}
