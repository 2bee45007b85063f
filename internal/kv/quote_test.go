package kv_test

import (
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A range is printed in full, unless its keys are long.
func TestRangeString(t *testing.T) {
	long := strings.Repeat("\x01", 1<<20)
	for _, c := range []struct {
		r    kv.Range
		want string
	}{
		{kv.Single("a"), `"a"`},
		{kv.Range{Start: "a"}, `["a", ∞)`},
		{kv.Prefix("a"), `["a", "b")`},
		{kv.Single(strings.Repeat("k", 256)), `"` + strings.Repeat("k", 256) + `"`},
		{kv.Single(long), `"` + strings.Repeat(`\x01`, 256) + `"… (1048576 bytes)`},
		{kv.Range{Start: "a", End: long}, `["a", "` + strings.Repeat(`\x01`, 256) + `"… (1048576 bytes))`},
	} {
		if got := c.r.String(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
