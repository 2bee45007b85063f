package etcdapi

import (
	"runtime"

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
