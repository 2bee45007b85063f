package chaos

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// natives are watches of one native client, which resumes them itself.
type natives struct {
	client  *client.Client
	watches []nativeWatch
}

// nativeWatch is one watch, with the observer of its updates. A slow one waits at the gate.
type nativeWatch struct {
	wish wish
	gate *gate
	observer
}

// observer receives the updates of a watch: it is a [watcher], which judges them, or passes them on
// to a watcher in another process.
type observer interface {
	saw(op check.Op, now time.Time)
	resumed(r resume)
	noticed()
	relisted(why error)
	resynced()
	ended(err error)
	slept()
}

// watchesOf returns the watches of watchers in this process.
func watchesOf(ws []*watcher) []nativeWatch {
	out := make([]nativeWatch, len(ws))
	for i, w := range ws {
		out[i] = nativeWatch{w.wish, w.gate, w}
	}
	return out
}

func newNatives(nodes []target, ws []nativeWatch) (*natives, error) {
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

// watch watches until ctx ends. If the server no longer has the missed events, the client has to
// start from the state, which counts as a relist: no watch should need it.
func (n *natives) watch(ctx context.Context, w nativeWatch) {
	for relist := false; ; relist = true {
		err := n.follow(ctx, w, relist)
		if ctx.Err() != nil {
			return
		}
		var compacted *client.CompactedError
		if !errors.As(err, &compacted) && !errors.Is(err, client.ErrLineage) {
			w.ended(err)
			return
		}
		w.relisted(err)
		if errors.Is(err, client.ErrLineage) {
			w.noticed()
		}
	}
}

// follow watches until the watch ends, and returns the cause.
func (n *natives) follow(ctx context.Context, w nativeWatch, relist bool) error {
	var history client.Position
	opts := []client.WatchOption{client.WithProgress(), client.OnResume(func(r client.Resume) {
		w.resumed(resume{from: r.From, to: r.To, reason: r.Reason, behind: r.Revision})
	})}
	switch {
	case relist, w.wish.start == stateFirst:
		opts = append(opts, client.WithState())
	case w.wish.start == fromRevision:
		opts = append(opts, client.FromRevision(int64(w.wish.watch.Start)))
	}
	if w.wish.watch.Prev {
		opts = append(opts, client.WithPrevKV())
	}
	if w.wish.slow {
		opts = append(opts, client.WithBuffer(16<<10))
	}
	r := w.wish.watch.Range
	cw := n.client.Watch(ctx, client.Between(r.Start, r.End), append(opts, conflated(w.wish.conflate)...)...)
	defer cw.Close()
	for first := true; ; first = false {
		if w.wish.slow && w.gate.pass(ctx) {
			w.slept()
		}
		u, err := cw.Next(ctx)
		if err != nil {
			return err
		}
		now := historyOf(u.Position())
		if history != (client.Position{}) && now != history {
			w.noticed()
		}
		history = now
		op := opFrom(&u)
		if op.Kind == check.OpProgress && first && w.wish.start == fromNow && !relist {
			op.Kind = check.OpCreated // the client reports the start of the watch this way
		}
		if u.Kind == client.KindResync {
			w.resynced()
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
		if e.Type == client.EventDelete {
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
