package etcdwatch

import (
	"testing"
	"time"
)

// A client that has etcd read its log again and again has a tenth of etcd's time, after a burst;
// another one is not delayed, and one that stops is forgotten.
func TestReadsOfTheLogArePaced(t *testing.T) {
	p := make(paces)
	start := time.Unix(1000, 0)
	now, read := start, time.Duration(0)
	for now.Sub(start) < time.Minute {
		if pause := p.pause("many", now); pause > 0 {
			now = now.Add(pause)
		}
		for range 3 { // reads that run at the same time count once
			p.took("many", now, now.Add(100*time.Millisecond))
		}
		now, read = now.Add(100*time.Millisecond), read+100*time.Millisecond
	}
	if least, most := 6*time.Second, 6500*time.Millisecond; read < least || read > most {
		t.Errorf("etcd has read for %v of a minute, want %v to %v", read, least, most)
	}
	if p.pause("many", now) <= 0 || p.pause("other", now) > 0 {
		t.Errorf("pauses are %v and, of another client, %v", p.pause("many", now), p.pause("other", now))
	}
	p.took("many", now, now.Add(time.Hour))
	now = now.Add(time.Hour)
	if pause := p.pause("many", now); pause != maxPace {
		t.Errorf("after a long read: a pause of %v, want %v", pause, maxPace)
	}
	now = now.Add(maxPace)
	p.took("other", now, now.Add(time.Millisecond))
	if pause := p.pause("other", now); pause > 0 {
		t.Errorf("after one short read: a pause of %v", pause)
	}
	now = now.Add(maxPace)
	p.took("third", now, now)
	if len(p) != 1 {
		t.Errorf("%d clients are kept, want the one that reads", len(p))
	}
}
