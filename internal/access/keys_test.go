package access_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/access"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// The keys of all watches of a node are bounded without a policy, too, and count until
// their watch ends.
func TestWatchKeysAreBounded(t *testing.T) {
	b := budget.New(400)
	r := kv.Range{Start: strings.Repeat("a", 30), End: strings.Repeat("b", 30)}
	if err := access.OpenWatch(b, nil, r); err != nil {
		t.Fatal(err)
	}
	var limit *kv.LimitError
	if err := access.OpenWatch(b, nil, r); !errors.As(err, &limit) || limit.Limit != budget.Flag {
		t.Errorf("one too many: %v", err)
	}
	if held := b.Held(budget.WatchKeys); held != 60 {
		t.Errorf("%d bytes are held", held)
	}
	access.CloseWatch(b, nil, r)
	if err := access.OpenWatch(b, nil, r); err != nil || b.Held(budget.WatchKeys) != 60 {
		t.Errorf("after the first has ended: %v, %d bytes", err, b.Held(budget.WatchKeys))
	}
	if err := access.OpenWatch(nil, nil, r); err != nil {
		t.Error(err)
	}
	access.CloseWatch(nil, nil, r)
}

// The keys of a caller's watches count against its limit until their watch ends, and a
// watch that is refused leaves nothing behind: neither itself nor its keys.
func TestWatchKeysOfACallerAreBounded(t *testing.T) {
	r := start(t, granting("/a/", "limits: {watches: 2, watch_key_bytes: 100}\n"), nil)
	ctx, gone := r.connect()
	defer gone()
	c := r.caller(ctx)
	b := budget.New(1000)
	long, short := kv.Range{Start: strings.Repeat("a", 30), End: strings.Repeat("b", 30)}, kv.Range{Start: "a", End: "b"}
	opens := func(what string, of kv.Range, limit string) {
		t.Helper()
		err := access.OpenWatch(b, c, of)
		refused := new(kv.LimitError)
		if limit == "" && err != nil || limit != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Limit, limit)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	opens("the first", long, "")
	opens("too many keys", long, "watch_key_bytes")
	opens("too many keys, again", long, "watch_key_bytes")
	opens("the second", short, "") // the refused ones count as no watches
	opens("too many watches", short, "watches")
	if held := b.Held(budget.WatchKeys); held != 62 {
		t.Errorf("%d bytes are held", held)
	}
	access.CloseWatch(b, c, long)
	opens("after the first has ended", long, "")
	access.CloseWatch(b, c, long)
	access.CloseWatch(b, c, short)
	if held := b.Held(budget.WatchKeys); held != 0 {
		t.Errorf("%d bytes are held by no watch", held)
	}
}

// A key of the greatest length is taken.
func TestTheLongestWatchKey(t *testing.T) {
	if err := access.CheckWatchKey("key", make([]byte, access.MaxWatchKey)); err != nil {
		t.Error(err)
	}
	invalid := new(kv.InvalidError)
	if err := access.CheckWatchKey("range_end", make([]byte, access.MaxWatchKey+1)); !errors.As(err, &invalid) || invalid.Field != "range_end" {
		t.Errorf("a longer one: %v", err)
	}
}
