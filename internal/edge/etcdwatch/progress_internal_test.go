package etcdwatch

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/router"
)

// After a restore of etcd, a request for progress waits until the watches of the old lineage have ended. Their
// revisions do not compare with the new ones: an earlier answer would apply to them, too, and a client would
// continue them in the new lineage, where they have missed events.
func TestProgressWaitsForWatchesOfAnOldLineage(t *testing.T) {
	s := new(stream)
	p := &s.progress
	p.s, p.stopped, p.asking = s, true, true
	w := &watch{s: s, live: true, start: 900, readerKind: readerKind{lineage: 1}, reader: &reader{s: s, inner: new(router.Watch)}}
	w.reader.held.revision = 1001
	s.noteSent(1, 1000)
	p.answer([]*watch{w}, true, wantedRevision{revision: 10, lineage: 2})
	if !p.asking {
		t.Error("the request is given up for a watch that is ending")
	}
	if s.noteSent(1, 1001); s.sent != 0 || s.lineage != 2 {
		t.Errorf("no answer may be below %d in lineage %d, of an event of the old lineage", s.sent, s.lineage)
	}
	if s.noteSent(2, 11); s.sent != 11 {
		t.Errorf("no answer may be below %d, want the revision that was sent", s.sent)
	}
}
