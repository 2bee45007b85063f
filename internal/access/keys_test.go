package access_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/access"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// The keys of all watches of a node are bounded without a policy, too, and count until
// their watch ends.
func TestWatchKeysAreBounded(t *testing.T) {
	k := &access.WatchKeys{Max: 100}
	r := kv.Range{Start: strings.Repeat("a", 30), End: strings.Repeat("b", 30)}
	if err := k.Open(nil, r); err != nil {
		t.Fatal(err)
	}
	var limit *kv.LimitError
	if err := k.Open(nil, r); !errors.As(err, &limit) || limit.Max != 100 || limit.RetryAfter <= 0 {
		t.Errorf("one too many: %v", err)
	}
	if k.Held() != 60 {
		t.Errorf("%d bytes are held", k.Held())
	}
	k.Close(nil, r)
	if err := k.Open(nil, r); err != nil || k.Held() != 60 {
		t.Errorf("after the first has ended: %v, %d bytes", err, k.Held())
	}
	var none *access.WatchKeys
	if err := none.Open(nil, r); err != nil {
		t.Error(err)
	}
	none.Close(nil, r)
}
