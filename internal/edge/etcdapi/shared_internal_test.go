package etcdapi

import (
	"bytes"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// The range of a request, also as the policy checks it, shares the bytes of the request.
func TestRangesShareTheirRequest(t *testing.T) {
	key, end := bytes.Repeat([]byte("k"), 1000), bytes.Repeat([]byte("l"), 1000)
	r := &etcdserverpb.RangeRequest{Key: key, RangeEnd: end}
	want := kv.Range{Start: string(key), End: string(end)}
	if n := testing.AllocsPerRun(100, func() {
		if got, ok := rangeOf(r); !ok || got != want {
			t.Errorf("got %v, %v", got, ok)
		}
		if got := spanned(key, end); got != want {
			t.Errorf("got %v", got)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if got := spanned(nil, nil); got != kv.Single("") { // the empty key, as with etcd
		t.Errorf("without a key: %v", got)
	}
}
