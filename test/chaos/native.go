package chaos

import (
	"context"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/check"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// natives are watches of one native client, which resumes them itself.
type natives struct {
	client  *client.Client
	watches []*watcher
}

func newNatives(nodes []target, ws []*watcher) (*natives, error) {
	c, err := client.New(client.Config{Endpoints: addrs(nodes)})
	if err != nil {
		return nil, err
	}
	return &natives{client: c, watches: ws}, nil
}

func (n *natives) run(ctx context.Context) {
	var g sync.WaitGroup
	for _, w := range n.watches {
		g.Go(func() { n.watch(ctx, w) })
	}
	g.Wait()
}

func (n *natives) close() error { return n.client.Close() }

// watch watches until ctx ends.
func (n *natives) watch(ctx context.Context, w *watcher) {
	opts := []client.WatchOption{client.WithProgress(), client.OnResume(func(r client.Resume) {
		w.resumed(resume{from: r.From, to: r.To, reason: r.Reason, behind: r.Revision})
	})}
	switch w.wish.start {
	case fromRevision:
		opts = append(opts, client.FromRevision(int64(w.wish.watch.Start)))
	case stateFirst:
		opts = append(opts, client.WithState())
	}
	if w.wish.watch.Prev {
		opts = append(opts, client.WithPrevKV())
	}
	r := w.wish.watch.Range
	cw := n.client.Watch(ctx, client.Between(r.Start, r.End), opts...)
	defer cw.Close()
	for first := true; ; first = false {
		u, err := cw.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.ended(err)
			}
			return
		}
		op := check.Op{Revision: kv.Revision(u.Revision)}
		switch u.Kind {
		case client.KindBatch:
			op.Kind, op.Events = check.OpBatch, eventsFrom(u.Events)
		case client.KindState:
			op.Kind, op.Items = check.OpState, itemsFrom(u.KVs)
		case client.KindProgress:
			op.Kind = check.OpProgress
			if first && w.wish.start == fromNow {
				op.Kind = check.OpCreated // the client says so where the watch starts
			}
		}
		w.saw(op, time.Now())
	}
}

func itemFrom(k *client.KeyValue) check.Item {
	return check.Item{
		Key: string(k.Key), Value: check.HashValue(k.Value),
		Create: kv.Revision(k.CreateRevision), Mod: kv.Revision(k.ModRevision), Version: k.Version, Lease: k.Lease,
	}
}

func itemsFrom(kvs []client.KeyValue) []check.Item {
	out := make([]check.Item, len(kvs))
	for i := range kvs {
		out[i] = itemFrom(&kvs[i])
	}
	return out
}

func eventsFrom(events []client.Event) []check.Event {
	out := make([]check.Event, len(events))
	for i := range events {
		e := &events[i]
		if e.Type == client.Delete {
			out[i] = check.Delete(string(e.KV.Key), kv.Revision(e.KV.ModRevision))
		} else {
			out[i] = check.Put(itemFrom(&e.KV))
		}
		if e.Prev != nil {
			p := itemFrom(e.Prev)
			out[i].Prev = &p
		}
	}
	return out
}
