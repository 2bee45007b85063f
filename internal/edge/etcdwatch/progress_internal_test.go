package etcdwatch

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/router"
)

// After a restore of etcd, a request for progress waits until the watches of the old lineage have ended.
// Revisions of two lineages do not compare: an earlier answer would apply to the old watches, too, and a
// client would resume them in the new lineage, after events that they have missed.
func TestProgressWaitsForWatchesOfAnOldLineage(t *testing.T) {
	s := new(stream)
	p := &s.progress
	p.s, p.stopped, p.asking = s, true, true
	w := &watch{s: s, live: true, start: 900, readerKind: readerKind{lineage: 1}, reader: &reader{s: s, inner: new(router.Watch)}}
	w.reader.held.revision = 1001
	s.noteSent(1, 1000)
	p.answer([]*watch{w}, true, wantedRevision{revision: 10, lineage: 2})
	if !p.asking {
		t.Error("the request was dropped because of a watch that is ending")
	}
	if s.noteSent(1, 1001); s.sent != 0 || s.lineage != 2 {
		t.Errorf("the least answer is %d in lineage %d: it counts an event of the old lineage", s.sent, s.lineage)
	}
	if s.noteSent(2, 11); s.sent != 11 {
		t.Errorf("the least answer is %d, want the revision that was sent", s.sent)
	}
}
