package router

import (
	"context"
	"fmt"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// load accounts for the keys of other nodes that a reading holds, in bytes of the budget. One
// goroutine at a time may use it.
type load struct {
	budget *budget.Budget
	holder budget.Client // the zero Client: several clients share the items
	// over has a place for one load that is larger than the free budget; nil: a larger
	// load fails.
	over chan struct{}

	size, taken int64
	isOver      bool
}

const (
	// freeLoad is the size in bytes up to which a load takes nothing from the budget.
	freeLoad = 64 << 10
	// loadStep is the number of bytes that a load takes from the budget at a time.
	loadStep = 256 << 10
)

// add accounts for keys. If the budget does not have their bytes, it waits until this load
// alone may exceed the share, or, without over, fails with a *kv.LimitError.
func (l *load) add(ctx context.Context, items ...*kv.KeyValue) error {
	for _, item := range items {
		l.size += int64(len(item.Encoded()))
	}
	for l.size > freeLoad && l.size > l.taken {
		own := l.taken
		if l.over != nil {
			own = 0 // it may exceed the share in its turn
		}
		err := l.budget.Take(l.holder, budget.Fetches, loadStep, own)
		switch {
		case err == nil:
		case l.over == nil:
			return err
		case l.isOver:
			l.budget.Settle(l.holder, budget.Fetches, 0, loadStep)
		default:
			select {
			case l.over <- struct{}{}:
				l.isOver = true
			case <-ctx.Done():
				return fmt.Errorf("wait for memory: %w", context.Cause(ctx))
			}
			continue
		}
		l.taken += loadStep
	}
	return nil
}

// release returns all bytes to the budget. It may be called twice, and on nil.
func (l *load) release() {
	if l == nil {
		return
	}
	l.budget.Give(l.holder, budget.Fetches, l.taken)
	l.size, l.taken = 0, 0
	if l.isOver {
		l.isOver = false
		<-l.over
	}
}
