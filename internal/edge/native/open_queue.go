package native

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/etcdwatch"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// queuedOpen is a watch that needs etcd or another node before it can start. A dying
// node or a rollout creates many of them at once, so they pass a gate that both APIs
// share. Watches that start from local data bypass it.
type queuedOpen struct {
	w  *watch
	at start
}

// openInTurn opens the watch in a goroutine, at once or after a wait in the queue. It
// fails with a *kv.LimitError when the queue is full.
func (a *API) openInTurn(x queuedOpen) error {
	again, ok := a.cfg.OpenQueue.Enter(x.w.s.turns(), func() bool {
		return x.w.s.spawn(func() {
			began := time.Now()
			if x.w.ending.Load() != nil { // it was ended while it waited
				x.w.task.Start()
			} else {
				x.w.open(x.w.s.ctx, x.at)
			}
			a.cfg.OpenQueue.Leave(time.Since(began))
		})
	})
	if !ok {
		return &kv.LimitError{
			Limit: "watches that wait to be opened", Max: etcdwatch.MaxOpensWaiting, RetryAfter: again,
			Detail: "too many watches are opening at this node: retry, or use another node",
		}
	}
	return nil
}
