package placement

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

// countedFile is a map file that counts what is written to it.
type countedFile struct {
	*MemDisk
	writes atomic.Int64
}

func (f *countedFile) Save(m *shard.Map) error {
	f.writes.Add(1)
	return f.MemDisk.Save(m)
}

// A map that changes five times a second is written about once a second, each time the
// newest version, and at the stop: not once for each change.
func TestTheMapFileIsWrittenOnceForManyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const changes, pace = 50, 200 * time.Millisecond
		file := &countedFile{MemDisk: NewMemDisk()}
		p := &Placement{
			cfg: Config{Members: func() []shard.Member { return nil }, Name: "a"}, log: slog.New(slog.DiscardHandler),
			file: file, maps: new(versions), opened: make(chan struct{}),
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		versionOnDisk := func() uint64 {
			t.Helper()
			m, err := file.Load()
			if err != nil || m == nil {
				t.Fatalf("the map file: %v, %v", m, err)
			}
			return m.Version
		}
		m := maptest.Pair(t, "a")
		show := func() {
			t.Helper()
			next := m.Clone()
			next.Version++
			if err := p.Observe(next); err != nil {
				t.Fatal(err)
			}
			m = next
			synctest.Wait()
		}
		show()
		if got := versionOnDisk(); got != m.Version {
			t.Errorf("the file of a quiet cluster has version %d after a change to %d", got, m.Version)
		}
		for range changes {
			time.Sleep(pace)
			show()
			if late := m.Version - versionOnDisk(); late > uint64(time.Second/pace) {
				t.Fatalf("the file is %d versions late", late)
			}
		}
		if most := int64(changes*pace/time.Second) + 1; file.writes.Load() > most {
			t.Errorf("%d changes in %v were written %d times, want at most %d", changes, changes*pace, file.writes.Load(), most)
		}
		time.Sleep(2 * time.Second)
		if got := versionOnDisk(); got != m.Version {
			t.Errorf("after the last change the file has version %d, want %d", got, m.Version)
		}
		show()
		show()
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if got := versionOnDisk(); got != m.Version {
			t.Errorf("after the stop the file has version %d, want %d", got, m.Version)
		}
	})
}
