package native

import (
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/etcdwatch"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// opening is a watch that has to wait for etcd or other nodes before it begins. When a
// node dies or a rollout starts, they come all at once. So they pass a gate, which both
// APIs share. Watches that begin with what is here are no burden, and do not wait behind
// the others.
type opening struct {
	w  *watch
	at start
}

// openInTurn opens the watch beside its stream, now or in its turn. It fails with a
// *kv.LimitError when too many wait.
func (a *API) openInTurn(x opening) error {
	again, ok := a.cfg.Openings.Enter(x.w.s.turns(), func() bool {
		return x.w.s.spawn(func() {
			began := time.Now()
			if x.w.ending.Load() != nil { // while it waited
				x.w.task.Start()
			} else {
				x.w.open(x.w.s.ctx, x.at)
			}
			a.cfg.Openings.Leave(time.Since(began))
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
