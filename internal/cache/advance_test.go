package cache

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Progress never decreases, and a cache that receives only progress still drops old
// batches.
func TestAQuietCacheEvictsOldBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var applied []kv.Revision
		cfg := small(nil)
		cfg.WindowTime, cfg.RootsTime, cfg.TombstoneTime = time.Minute, time.Minute, time.Minute
		cfg.Applied = func(b *kv.Batch) { applied = append(applied, b.Revision) }
		c := loaded(cfg, 10)
		const batches = segmentBatches + 10
		for i := range kv.Revision(batches) {
			b := puts(11+i, fmt.Sprintf("k%d", i%10))
			c.apply(&b)
		}
		last := kv.Revision(10 + batches)
		gone := batch(last+1, del("k1", last+1), del("k2", last+1))
		c.apply(&gone)
		last++
		before := c.Status()
		if len(applied) != batches+1 || before.Batches != batches+1 || before.Events != batches+2 {
			t.Errorf("%d batches were reported as applied; counted %d, with %d events", len(applied), before.Batches, before.Events)
		}
		if before.WindowBatches != batches+1 || before.Roots == 0 || before.Tombstones != 2 {
			t.Errorf("before: %+v", before)
		}
		c.advance(last + 5)
		time.Sleep(500 * time.Millisecond)
		c.advance(last + 2)
		if at := c.Progress(); at != last+5 {
			t.Errorf("progress went from %d to %d", last+5, at)
		}
		time.Sleep(time.Hour)
		c.advance(last + 2) // nothing new, but time has passed
		after := c.Status()
		if after.Progress != last+5 {
			t.Errorf("progress went back to %d", after.Progress)
		}
		if after.WindowBatches >= segmentBatches || after.Floor <= before.Floor || after.Roots != 0 || after.Tombstones != 0 || after.DeltaFloor <= before.DeltaFloor {
			t.Errorf("after an hour: %+v", after)
		}
		if after.Keys != before.Keys {
			t.Errorf("%d keys, before %d", after.Keys, before.Keys)
		}
	})
}
