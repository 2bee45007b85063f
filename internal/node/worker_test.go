package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/follow"
	"github.com/shardwatch/shardwatch/client/mirror"
	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// kept is a copy of a range, maintained by a worker or OnChange.
type kept struct {
	mu   sync.Mutex
	keys map[string]string
}

func (k *kept) put(key, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[key] = value
}

func (k *kept) remove(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.keys, key)
}

func (k *kept) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.keys)
}

// is returns an error unless the copy equals want.
func (k *kept) is(want map[string]string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !maps.Equal(k.keys, want) {
		return fmt.Errorf("the copy has %d keys, etcd has %d, or their values differ", len(k.keys), len(want))
	}
	return nil
}

// values returns the keys and values in etcd.
func (r *rebuilding) values() map[string]string {
	r.t.Helper()
	got, err := r.cli.Get(r.ctx, "/k/", clientv3.WithPrefix())
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]string{}
	for _, kv := range got.Kvs {
		out[string(kv.Key)] = string(kv.Value)
	}
	return out
}

// change writes and deletes keys, each with a value of its own.
func (r *rebuilding) change(n int) {
	r.t.Helper()
	for i := range n {
		key := fmt.Sprintf("/k/%d", i%20)
		_, err := r.cli.Put(r.ctx, key, fmt.Sprint(time.Now().UnixNano()))
		if err == nil && i%7 == 0 {
			_, err = r.cli.Delete(r.ctx, key)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// A worker that fails after every tenth update and restarts, and a typed mirror, equal etcd after each node was killed
// in turn, and after nodes and etcd were rebuilt without data.
func TestAWorkerAndATypedMirrorLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes")
	}
	t.Parallel()
	bin, err := nodetest.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ports, err := freeport.Take(2)
	if err != nil {
		t.Fatal(err)
	}
	r := &rebuilding{t: t, ctx: ctx, addr: [2]string{ports[0], ports[1]}}
	r.newEtcd(20)
	if r.tier, err = nodetest.Start(ctx, nodetest.Config{Binary: bin, Dir: t.TempDir(), Etcd: "http://" + r.addr[0], Args: []string{"--shards", "2"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.tier.Stop()
		if t.Failed() {
			t.Log(r.tier.Logs(5_000))
		}
	})
	copies := map[string]*kept{"the worker": {keys: map[string]string{}}, "OnChange": {keys: map[string]string{}}}
	c, keys := r.connect(), client.Prefix("/k/")
	typed := mirror.NewTyped(ctx, c, keys, mirror.Config[string]{
		Decode: func(value []byte) (string, error) { return string(value), nil },
		OnChange: func(key string, _, after *string) {
			if after == nil {
				copies["OnChange"].remove(key)
			} else {
				copies["OnChange"].put(key, *after)
			}
		},
	})
	defer func() { _ = typed.Close() }()
	store := follow.File(filepath.Join(t.TempDir(), "position"))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	failures := 0
	wg.Go(func() {
		for err := errFailing; errors.Is(err, errFailing); {
			err = follow.Run(ctx, c, keys, store, worker(copies["the worker"], &failures))
		}
	})
	same := func(what string) {
		t.Helper()
		for name, k := range copies {
			testkit.Succeeds(t, name+" equals etcd "+what, func() error { return k.is(r.values()) })
		}
	}
	same("at first")
	for _, n := range r.tier.Nodes {
		r.change(30)
		n.Kill()
		r.change(30)
		if err := errors.Join(n.Start(), r.tier.WaitReady(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	same("after each node was killed")
	r.rebuild(5)
	same("after the rebuild")
	r.change(30)
	same("after changes")
	cancel()
	wg.Wait()
	if failures == 0 {
		t.Error("the worker never failed")
	}
}

var errFailing = errors.New("the worker fails")

// worker returns the apply of a worker that fails after it has applied the tenth update.
func worker(k *kept, failures *int) func(context.Context, client.Update) error {
	updates := 0
	return func(_ context.Context, u client.Update) error {
		err := u.Apply(func(kv client.KeyValue) error { k.put(string(kv.Key), string(kv.Value)); return nil },
			func(key []byte) error { k.remove(string(key)); return nil }, func() error { k.reset(); return nil })
		if updates++; updates == 10 {
			*failures++
			err = errFailing
		}
		return err
	}
}
