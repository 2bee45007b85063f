package etcdapi

import (
	"runtime"
	"testing"

	"github.com/shardwatch/shardwatch/internal/budget"
)

// CutLists has lists cut into chunks of so many bytes.
func (d *Door) CutLists(least, usual, most int) {
	c := d.reads.chunks
	c.least, c.usual, c.most = least, usual, most
}

// Held returns the bytes of chunks that answers hold, once garbage is gone.
func (d *Door) Held() int64 {
	runtime.GC()
	return d.cfg.Budget.Held(budget.Lists)
}

// HoldTurns takes all turns of lists until leave.
func (d *Door) HoldTurns(tb testing.TB) (leave func()) {
	var all []func()
	for range runtime.GOMAXPROCS(0) {
		one, err := d.reads.turns.Wait(tb.Context(), "all")
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, one)
	}
	return func() {
		for _, one := range all {
			one()
		}
	}
}

// Waiting returns how many lists have a turn, and how many wait for one.
func (d *Door) Waiting() (running, waiting int) { return d.reads.turns.Figures() }
