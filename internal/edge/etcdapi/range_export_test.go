package etcdapi

import (
	"runtime"
	"testing"

	"github.com/shardwatch/shardwatch/internal/budget"
)

// CutLists sets the sizes of the chunks of lists in bytes.
func (a *API) CutLists(least, usual, most int) {
	c := a.reads.chunks
	c.least, c.usual, c.most = least, usual, most
}

// Held returns the bytes of chunks in answers, after a garbage collection.
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

// Waiting returns the number of lists with a turn, and of lists that wait for one.
func (a *API) Waiting() (running, waiting int) { return a.cfg.Turns.Figures() }
