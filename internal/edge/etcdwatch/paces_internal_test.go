package etcdwatch

import (
	"testing"
	"time"
)

// A client that makes etcd read its log repeatedly gets a three-hundredth of etcd's time, after a burst.
// Another client is not delayed, and the entry of a client that stops is dropped.
func TestReadsOfTheLogArePaced(t *testing.T) {
	const short, long = etcdWaits / 2, etcdWaits + 60*time.Millisecond // the pause of long is below maxPace
	const revisions = 5_000
	for took, costs := range map[time.Duration]time.Duration{short: revisions * revisionCosts, long: long - etcdWaits} {
		p := make(paces)
		start := time.Unix(1000, 0)
		now, reads := start, 0
		for now.Sub(start) < 20*time.Minute {
			if pause := p.begin("many", now); pause > 0 {
				now = now.Add(pause)
			}
			for _, later := range []time.Duration{0, endTogether / 10, endTogether / 5} { // concurrent parts of one read count once
				p.took("many", took, now.Add(took+later), revisions, 0)
			}
			now = now.Add(took)
			reads++
		}
		if want := int((20*time.Minute + paceBurst) / (paceRatio * costs)); reads < want || reads > want+2 {
			t.Errorf("etcd has read for %v %d times in twenty minutes, want %d", took, reads, want)
		}
		if many, other := p.begin("many", now), p.begin("other", now); many <= 0 || other > 0 {
			t.Errorf("pauses are %v and, of another client, %v", many, other)
		}
	}
	p, now := make(paces), time.Unix(1000, 0)
	p.took("few", time.Hour, now, 300, 0) // on a busy machine
	if pause := p.begin("few", now); pause > 0 {
		t.Errorf("after a long read of a short log: a pause of %v", pause)
	}
	p.took("large", time.Hour, now, 300, 1<<20) // 300 MiB keep etcd busy for longer
	if pause := p.begin("large", now); pause != maxPace {
		t.Errorf("after a long read of large values: a pause of %v, want %v", pause, maxPace)
	}
	p = make(paces)
	p.took("many", time.Hour, now, 1_000_000, 0)
	if pause := p.begin("many", now); pause != maxPace {
		t.Errorf("after a long read: a pause of %v, want %v", pause, maxPace)
	}
	now = now.Add(maxPace)
	p.took("other", short, now.Add(short), revisions, 0)
	if pause := p.begin("other", now.Add(short)); pause > 0 {
		t.Errorf("after one short read: a pause of %v, want none", pause)
	}
	p.took("other", 0, now, 0, 0)
	now = now.Add(maxPace)
	p.took("third", 0, now, 0, 0)
	if len(p) != 1 {
		t.Errorf("%d clients are kept, want only the one that reads", len(p))
	}
}

// At most maxParts parts of a client share one read of etcd's log; the others wait for the next read.
func TestPartsBeyondOneReadWait(t *testing.T) {
	p := make(paces)
	now := time.Unix(1000, 0)
	for i := range maxParts {
		if pause := p.begin("many", now); pause > 0 {
			t.Fatalf("part %d pauses for %v", i, pause)
		}
	}
	if pause := p.begin("many", now); pause != beginAgain {
		t.Errorf("one more part pauses for %v, want %v", pause, beginAgain)
	}
	p.took("other", 0, now, 0, 0)
	if pause := p.begin("many", now); pause != beginAgain {
		t.Errorf("after another client's read, one more part pauses for %v, want %v", pause, beginAgain)
	}
	const cost, revisions = 50 * time.Millisecond, 5_000
	now = now.Add(time.Second)
	p.took("many", cost+etcdWaits, now, revisions, 0)
	pause := p.begin("many", now)
	if want := paceRatio*cost - paceBurst; pause != want {
		t.Errorf("after the read, one more part pauses for %v, want %v", pause, want)
	}
	if pause := p.begin("many", now.Add(pause)); pause > 0 {
		t.Errorf("the first part after the pause pauses for %v", pause)
	}
}
