package replica

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

const (
	// pushPatience is how long progress may take that another node reports without a
	// question: it learns of the revision at about the same time, and asks etcd.
	pushPatience = 5 * time.Millisecond
	// maxPause bounds the revisions that are asked for at once after one has not come
	// without a question.
	maxPause = 255
)

// pushed decides which revisions another node is asked for, and which it reports
// without a question. It is a value without a clock.
//
// A node reports its progress for as long as this one waits for revisions. It reports a
// revision that it waits for itself, or of which it has the events. It does not know others: so a
// revision is asked for that has not come in time, and after it so many further ones at
// once, twice as many each time.
type pushed struct {
	on      bool        // the node reports without a question
	recent  bool        // a revision was wanted since the last beat
	awaited kv.Revision // the revision that is to come without a question; 0: none
	pause   int         // the last number of revisions to ask for at once
	left    int         // how many of them are left
}

// want takes the highest revision that is wanted so far, and reports whether to ask for it at
// once.
func (p *pushed) want(revision kv.Revision) (ask bool) {
	p.recent = true
	if p.on && p.left == 0 {
		if p.awaited == 0 {
			p.awaited = revision
		}
		return false
	}
	p.left = max(0, p.left-1)
	return true
}

// ask notes that the highest wanted revision is asked for. A question has the node report without
// one until the next beat.
func (p *pushed) ask() {
	p.on, p.recent, p.awaited = true, true, 0
}

// miss notes that the awaited revision has not come in time, and is asked for.
func (p *pushed) miss() {
	p.pause = min(2*p.pause+1, maxPause)
	p.left = p.pause
}

// reached notes that all shards have come to a revision, and reports whether the wait begins
// again: for wanted, the highest revision so far.
func (p *pushed) reached(all, wanted kv.Revision) (again bool) {
	if p.awaited == 0 || all < p.awaited {
		return false
	}
	p.awaited, p.pause = 0, p.pause/2
	if again = all < wanted; again {
		p.awaited = wanted
	}
	return again
}

// beat notes that the next ping is sent. It ends the reports if no revision was wanted since the last one.
func (p *pushed) beat() {
	p.on, p.recent = p.recent, false
}
