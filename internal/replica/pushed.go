package replica

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

const (
	// pushPatience is how long unrequested progress of another node may take: the node
	// learns of the revision at about the same time, and asks etcd.
	pushPatience = 5 * time.Millisecond
	// maxPause bounds the revisions that are requested at once after one has not come
	// unrequested.
	maxPause = 255
)

// pushed decides which revisions to request from another node, and which the node
// reports unrequested. It is a value without a clock.
//
// A node reports its progress for as long as this one waits for revisions. It reports a revision
// for which it waits itself, or whose events it has, but no others. So a revision that has not
// come in time is requested, and the following ones are requested at once: twice as many each
// time.
type pushed struct {
	on      bool        // the node reports unrequested
	recent  bool        // a revision was wanted since the last ping
	awaited kv.Revision // the revision that should come unrequested; 0: none
	pause   int         // the last number of revisions to request at once
	left    int         // the remaining number of them
}

// want takes the highest wanted revision so far, and reports whether to request it at once.
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

// ask notes that the highest wanted revision is requested. A request makes the node report
// unrequested until the next ping.
func (p *pushed) ask() {
	p.on, p.recent, p.awaited = true, true, 0
}

// miss notes that the awaited revision has not come in time, and is requested.
func (p *pushed) miss() {
	p.pause = min(2*p.pause+1, maxPause)
	p.left = p.pause
}

// reached notes that all shards have reached a revision, and reports whether the wait begins
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
