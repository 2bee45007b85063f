// Package controllerruntime makes a mirror a source of sigs.k8s.io/controller-runtime,
// whose controller reconciles the keys of a range.
package controllerruntime

import (
	"context"
	"errors"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/shardwatch/shardwatch/client/mirror"
)

// Keys returns a source that requests a reconciliation for each key in the mirror's state, and
// for each key that is created, changed or deleted after that. requests maps a key to the objects
// that depend on it. The caller closes the mirror; the reconciler reads it.
//
//	ctrl.NewControllerManagedBy(manager).Named("routes").
//		WatchesRawSource(controllerruntime.Keys(mirror, requests)).Complete(reconciler)
func Keys(m *mirror.Mirror, requests func(key string) []reconcile.Request) source.SyncingSource {
	return &keys{mirror: m, requests: requests}
}

var errStartedTwice = errors.New("the source was already started: create another one with Keys")

type keys struct {
	mirror   *mirror.Mirror
	requests func(string) []reconcile.Request
	started  atomic.Bool
}

// Start implements source.Source: it returns at once, and adds requests until ctx or the mirror
// ends.
func (k *keys) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	if k.started.Swap(true) {
		return errStartedTwice
	}
	go func() {
		for change, err := range k.mirror.Changes(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					log.FromContext(ctx).Error(err, "source ended; changes are no longer reconciled")
				}
				return
			}
			for _, e := range change.Events {
				for _, r := range k.requests(string(e.KV.Key)) {
					queue.Add(r)
				}
			}
		}
	}()
	return nil
}

// WaitForSync implements source.SyncingSource: it waits until the mirror has the state.
func (k *keys) WaitForSync(ctx context.Context) error { return k.mirror.Sync(ctx) }

// String names the source in controller-runtime's logs.
func (k *keys) String() string { return "shardwatch keys" }
