// Package workqueue feeds a queue of k8s.io/client-go with the changed keys, as the
// handlers of an informer do.
package workqueue

import (
	"context"

	"k8s.io/client-go/util/workqueue"

	"github.com/shardwatch/shardwatch/client/mirror"
)

// Feed adds an item for each key in a mirror's state, and for each key that is created, changed
// or deleted after that, until ctx or the mirror ends, and returns the reason. While the workers
// are busy, changes of one key are merged, here and in the queue. A worker reads the value from
// the mirror, which has it when the item is added: no value means that the key was deleted.
//
//	go workqueue.Feed(ctx, mirror, queue, func(key string) string { return key })
func Feed[T comparable](ctx context.Context, m *mirror.Mirror, queue workqueue.TypedInterface[T], item func(key string) T) error {
	for change, err := range m.Changes(ctx) {
		if err != nil {
			return err
		}
		for _, e := range change.Events {
			queue.Add(item(string(e.KV.Key)))
		}
	}
	return context.Cause(ctx)
}
