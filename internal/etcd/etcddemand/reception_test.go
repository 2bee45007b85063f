package etcddemand

import (
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A slow consumer does not make its stream silent. An answer with an unchanged revision is not news.
func TestReception(t *testing.T) {
	var r Reception
	expect := func(what string, at, since, quiet, stale time.Duration) {
		t.Helper()
		if q, s := r.Quiet(at, since), r.Stale(at, since); q != quiet || s != stale {
			t.Errorf("%s: quiet for %v and stale for %v, want %v and %v", what, q, s, quiet, stale)
		}
	}
	expect("before the first wait", 60, 0, 0, 0)
	r.Ready(0)
	if r.Waits(1) != 0 || r.Waits(31) != 30 {
		t.Errorf("the consumer waits for %v and %v, want 0 and 30", r.Waits(1), r.Waits(31))
	}
	expect("nothing came yet", 31, 1, 30, 30)
	r.Got(100, false)
	expect("the consumer is busy", 90, 0, 0, 0)
	r.Ready(100)
	expect("an answer came", 105, 0, 5, 5)
	last := time.Duration(100) // time of the last answer with news
	for i, x := range []struct {
		what     string
		revision kv.Revision
		events   bool
		isNew    bool
	}{
		{"the same revision again", 100, false, false},
		{"a later one", 101, false, true},
		{"the same again", 101, false, false},
		{"events of a revision before", 50, true, true},
		{"an answer of a revision between", 100, false, false},
	} {
		r.Got(x.revision, x.events)
		at := time.Duration(200 + 100*i)
		if r.Ready(at); x.isNew {
			last = at
		}
		expect(x.what, at+5, 0, 5, at+5-last)
		expect(x.what+", needed of late", at+5, at+2, 3, 3)
	}
}
