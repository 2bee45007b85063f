package etcdapi

import (
	"runtime"
	"testing"

	"github.com/shardwatch/shardwatch/internal/budget"
)

// CutLists has lists cut into chunks of so many bytes.
func (a *API) CutLists(least, usual, most int) {
	c := a.reads.chunks
	c.least, c.usual, c.most = least, usual, most
}

// Held returns the bytes of chunks that answers hold, once garbage is gone.
func (a *API) Held() int64 {
	runtime.GC()
	return a.cfg.Budget.Held(budget.Lists)
}

// HoldTurns takes all turns of lists until leave.
func (a *API) HoldTurns(tb testing.TB) (leave func()) {
	var all []func()
	for range max(1, runtime.GOMAXPROCS(0)-1) {
		one, err := a.cfg.Turns.Take(tb.Context(), "all")
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
func (a *API) Waiting() (running, waiting int) { return a.cfg.Turns.Figures() }
