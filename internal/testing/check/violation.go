package check

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Promise names a guarantee of watches or reads.
type Promise string

// The promises.
const (
	PromiseOrdered      Promise = "ordered"
	PromiseUnique       Promise = "unique"
	PromiseReliable     Promise = "reliable"
	PromiseAtomic       Promise = "atomic"
	PromiseResumable    Promise = "resumable"
	PromiseBookmarkable Promise = "bookmarkable"
	PromisePrevious     Promise = "previous values"
	PromiseFiltered     Promise = "filtered"
	PromiseExact        Promise = "exact state"
	PromiseDelta        Promise = "exact delta"
	PromiseLinearizable Promise = "linearizable read"
	PromiseFresh        Promise = "bounded staleness"
	PromiseEqual        Promise = "equal to etcd"
)

// Violation is one broken promise, with the data to find it in the history.
type Violation struct {
	Promise Promise
	// Watcher is its observer: a watcher, a reader or a mirror.
	Watcher string
	// Revision is the revision of the violation; 0: it has none.
	Revision kv.Revision
	// Key is the key of the violation; may be empty.
	Key           string
	Expected, Got string
}

// String returns the violation in one line.
func (v Violation) String() string {
	s := fmt.Sprintf("%s: %s", v.Promise, v.Watcher)
	if v.Revision != 0 {
		s += fmt.Sprintf(" at revision %d", v.Revision)
	}
	if v.Key != "" {
		s += fmt.Sprintf(" key %q", v.Key)
	}
	return fmt.Sprintf("%s: expected %s, got %s", s, v.Expected, v.Got)
}
