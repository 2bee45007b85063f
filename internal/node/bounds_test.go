package node

import (
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/replica"
)

// One contradicted key is a wrong copy, two are another history; a revision ahead of
// etcd's counts as one. If etcd confirms all keys, the node that sent the data is wrong.
func TestVerdictOfContradictedKeys(t *testing.T) {
	for _, c := range []struct {
		contradicted int
		ahead        bool
		source       string
		want         verdict
	}{
		{0, false, replica.Etcd, nothingWrong},
		{0, false, "other", wrongSource},
		{0, true, replica.Etcd, wrongCopy},
		{0, true, "other", wrongCopy},
		{1, false, "other", wrongCopy},
		{1, false, replica.Etcd, wrongCopy},
		{1, true, replica.Etcd, otherHistory},
		{2, false, "other", otherHistory},
		{9, true, "other", otherHistory},
	} {
		if got := judgeSource(c.contradicted, c.ahead, c.source); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The newest look at etcd is the one of the newest lineage that began last.
func TestTheNewestReadOfEtcdIsKept(t *testing.T) {
	c := newClock(nil)
	if _, known := c.Looked(); known {
		t.Error("there is a look before the first")
	}
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for i, step := range []struct {
		look  replica.Look
		newer bool
	}{
		{replica.Look{Lineage: 1, Revision: 10, At: at(10)}, true},
		{replica.Look{Lineage: 1, Revision: 11, At: at(10)}, false},
		{replica.Look{Lineage: 1, Revision: 12, At: at(9)}, false},
		{replica.Look{Lineage: 1, Revision: 13, At: at(11)}, true},
		{replica.Look{Lineage: 2, Revision: 5, At: at(1)}, true},
		{replica.Look{Lineage: 1, Revision: 14, At: at(20)}, false},
		{replica.Look{Lineage: 2, Revision: 6, At: at(2)}, true},
	} {
		before, _ := c.Looked()
		if got := c.keep(step.look); got != step.newer {
			t.Errorf("%d: newer %v", i, got)
		}
		want := before
		if step.newer {
			want = step.look
		}
		if got, known := c.Looked(); got != want || !known {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}
	}
	c.revision, c.at = 7, at(7)
	c.forget()
	if look, known := c.Looked(); known {
		t.Errorf("a look of the old lineage is kept: %+v", look)
	}
	if revision, at, _ := c.Last(); revision != 0 || !at.IsZero() {
		t.Errorf("etcd's revision of the old lineage is kept: %d at %v", revision, at)
	}
	select {
	case <-c.kick:
	default:
		t.Error("etcd is not read again")
	}
}

// A node uses the look of another node while that is recent, but also reads etcd itself
// at intervals. Of nodes that exchange looks, the node with the newest look reads.
func TestReadsOfEtcdAreShared(t *testing.T) {
	start := time.Unix(1000, 0)
	ago := func(d time.Duration) time.Time { return start.Add(-d) }
	theirs := func(d time.Duration) replica.Look { return replica.Look{Lineage: 1, Revision: 7, At: ago(d)} }
	const fresh, ms = 100 * time.Millisecond, time.Millisecond
	for name, step := range map[string]struct {
		own, told     time.Duration // ago
		other, newest replica.Look
		err           error
		want          bool
	}{
		"no read is known":              {own: fresh, told: time.Minute},
		"recent":                        {own: time.Second, told: time.Minute, other: theirs(fresh), newest: theirs(fresh), want: true},
		"older than our own":            {own: fresh, told: time.Minute, other: theirs(2 * fresh), newest: theirs(fresh), want: true},
		"almost too old":                {own: fresh, told: time.Minute, other: theirs(borrowedFor - ms), want: true},
		"too old":                       {own: fresh, told: time.Minute, other: theirs(borrowedFor)},
		"our own is due soon":           {own: ownEvery - ms, told: time.Minute, other: theirs(fresh), want: true},
		"our own is due":                {own: ownEvery, told: time.Minute, other: theirs(fresh)},
		"etcd does not answer here":     {own: fresh, told: time.Minute, other: theirs(fresh), err: errIsolated},
		"sent, and ours is newest":      {own: 2 * fresh, told: toldFor - ms, other: theirs(3 * fresh), newest: theirs(2 * fresh)},
		"sent long ago, ours is newest": {own: 2 * fresh, told: toldFor, other: theirs(3 * fresh), newest: theirs(2 * fresh), want: true},
		"sent, and theirs is newest":    {own: 3 * fresh, told: fresh, other: theirs(2 * fresh), newest: theirs(2 * fresh), want: true},
		"sent, and theirs is too old":   {own: time.Second, told: fresh, other: theirs(borrowedFor), newest: theirs(borrowedFor)},
	} {
		c := newClock(nil)
		c.own, c.told, c.other, c.newest, c.err = ago(step.own), ago(step.told), step.other, step.newest, step.err
		if _, got := c.lendsLocked(start); got != step.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Two nodes that exchange looks and have read etcd at the same beat both consider their own
// read the newest. Either may leave the next read to the other, and either may read.
func TestReadsAtTheSameTickAreEquallyNew(t *testing.T) {
	now := time.Unix(1000, 0)
	own := now.Add(-2 * beat.Every)
	c := newClock(nil)
	c.own, c.told = own, now
	c.newest = replica.Look{Lineage: 1, Revision: 7, At: own}
	c.other = replica.Look{Lineage: 1, Revision: 7, At: own.Add(-beat.Every/2 + 1)}
	for read, left := false, false; !read || !left; {
		if look, lent := c.lendsLocked(now); !lent {
			read = true
		} else if left = true; look != c.other {
			t.Fatalf("%+v, want that of the other node", look)
		}
	}
}

// A part counts as stuck after exactly stuckLooks checks of the same touch.
func TestStuckAfterTooManyChecks(t *testing.T) {
	p := &pulse{touched: "the part", looks: stuckLooks - 1}
	if why := p.stuck(); why != "" {
		t.Errorf("reported as stuck too early: %s", why)
	}
	if p.looks++; !strings.HasPrefix(p.stuck(), "the part: no answer for 30s") {
		t.Errorf("not reported as stuck at the bound: %q", p.stuck())
	}
}
