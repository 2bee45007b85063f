package clients_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
	"github.com/shardwatch/shardwatch/test/conformance"
)

// limit is when a test has failed; it says nothing about speed.
const limit = 2 * time.Minute

// conforms runs all conformance cases with a client.
func conforms(t *testing.T, client conformance.Client) {
	t.Helper()
	for _, c := range conformance.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if err := conformance.Run(t.Context(), c, client, limit); err != nil {
				t.Errorf("%s: %v", c.Rule, err)
			}
		})
	}
}

// exits runs a case with a client whose program must end after the last update, because it has
// closed the client.
func exits(t *testing.T, name string, client conformance.Client) {
	t.Helper()
	ends := func(ctx context.Context, task conformance.Task, emit func(conformance.Update)) error {
		var got []conformance.Update
		if err := client(ctx, task, func(u conformance.Update) { got = append(got, u) }); err != nil {
			return err
		}
		for _, u := range got {
			emit(u)
		}
		return nil
	}
	if err := conformance.Run(t.Context(), caseOf(t, name), ends, limit); err != nil {
		t.Error(err)
	}
}

// caseOf returns the conformance case with a name.
func caseOf(t *testing.T, name string) conformance.Case {
	t.Helper()
	for _, c := range conformance.Cases() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no case %s", name)
	return conformance.Case{}
}

// survives kills the node that serves a client's watch while keys are written, so many times:
// each event arrives once, in order, and nothing is listed again.
func survives(t *testing.T, client conformance.Client, kills int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	etcd := etcdtest.StartProcess(t)
	binary, err := nodetest.Build(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := nodetest.Start(ctx, nodetest.Config{Binary: binary, Dir: t.TempDir(), Etcd: etcd.Endpoint(), Args: []string{"--shards", "2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Stop()
	w := watchWith(ctx, client, conformance.Task{
		Case: "chaos", Op: "watch", Endpoints: cluster.Endpoints(), Key: "/app/", RangeEnd: "/app0", Start: "state", Units: true,
	})
	defer w.end()
	w.until(t, "the state", func(got []conformance.Update) bool { return len(got) == 1 })
	wrote := writeUntil(ctx, t, etcd.Endpoint())
	w.until(t, "events", func(got []conformance.Update) bool { return len(got) > 50 })
	for range kills {
		serving := servingNode(ctx, t, cluster)
		serving.Kill()
		before := w.count()
		t.Logf("%s was killed after %d updates", serving.Name, before)
		w.until(t, "events from another node", func(got []conformance.Update) bool { return len(got) > before+50 })
	}
	want := wrote()
	last := want[len(want)-1].Revision
	w.until(t, fmt.Sprintf("revision %d", last), func(got []conformance.Update) bool { return got[len(got)-1].Revision >= last })
	got := w.all()
	if first := got[0]; first.Kind != "state" || len(first.KVs) > 0 {
		t.Fatalf("begins with %+v, want an empty state", first)
	}
	for i, u := range got[1:] {
		if i == len(want) {
			t.Fatalf("an update that was not written: %+v", u)
		}
		if u.Kind != "batch" || u.Revision != want[i].Revision || !reflect.DeepEqual(u.Events, want[i].Events) {
			t.Fatalf("update %d is %+v, want events %+v at revision %d", i, u, want[i].Events, want[i].Revision)
		}
	}
	t.Logf("%d updates in all", len(got))
}

// writeUntil writes to etcd until the function that it returns is called, which returns
// all that was written: a revision has one key, or two of a transaction.
func writeUntil(ctx context.Context, t *testing.T, endpoint string) (stop func() []conformance.Update) {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Context: ctx})
	if err != nil {
		t.Fatal(err)
	}
	stopping, done := make(chan struct{}), make(chan error, 1)
	var wrote []conformance.Update // owned by the goroutine until done
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stopping:
				done <- nil
				return
			default:
			}
			var ops []clientv3.Op
			var u conformance.Update
			for k := range 1 + i%2 {
				e := conformance.Event{Type: "PUT", Key: fmt.Sprintf("/app/%d/%02d", k, i%20), Value: fmt.Sprint(i)}
				if i%7 == 6 {
					e.Type, e.Value = "DELETE", ""
					e.Key = fmt.Sprintf("/app/%d/%02d", 0, (i-1)%20)
				}
				if k > 0 && i%7 == 6 {
					continue
				}
				u.Events = append(u.Events, e)
				if e.Type == "PUT" {
					ops = append(ops, clientv3.OpPut(e.Key, e.Value))
				} else {
					ops = append(ops, clientv3.OpDelete(e.Key))
				}
			}
			r, err := cli.Txn(ctx).Then(ops...).Commit()
			if err != nil {
				done <- err
				return
			}
			u.Revision = r.Header.GetRevision()
			wrote = append(wrote, u)
		}
	}()
	return func() []conformance.Update {
		close(stopping)
		if err := errors.Join(<-done, cli.Close()); err != nil {
			t.Fatal(err)
		}
		return wrote
	}
}

// servingNode returns the node that has the client's watch.
func servingNode(ctx context.Context, t *testing.T, cluster *nodetest.Cluster) *nodetest.Node {
	t.Helper()
	for _, n := range cluster.Nodes {
		if n.PID() == 0 {
			continue
		}
		conn, err := grpc.NewClient(n.Client, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		status, err := pb.NewClusterServiceClient(conn).Status(ctx, &pb.StatusRequest{})
		_ = conn.Close()
		if err != nil {
			t.Fatal(err)
		}
		if status.GetWatches() > 0 {
			return n
		}
	}
	t.Fatal("no node has the watch")
	return nil
}

// watching is a client that runs.
type watching struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the client has ended
	err    error         // set then

	mu    sync.Mutex
	got   []conformance.Update // guarded by mu
	woken chan struct{}        // capacity 1: there is another update
}

func watchWith(ctx context.Context, client conformance.Client, task conformance.Task) *watching {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{cancel: cancel, done: make(chan struct{}), woken: make(chan struct{}, 1)}
	go func() {
		defer close(w.done)
		w.err = client(ctx, task, func(u conformance.Update) {
			w.mu.Lock()
			w.got = append(w.got, u)
			w.mu.Unlock()
			select {
			case w.woken <- struct{}{}:
			default:
			}
		})
	}()
	return w
}

func (w *watching) end() {
	w.cancel()
	<-w.done
}

func (w *watching) all() []conformance.Update {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got[:len(w.got):len(w.got)]
}

func (w *watching) count() int { return len(w.all()) }

// until waits for updates.
func (w *watching) until(t *testing.T, what string, ok func(got []conformance.Update) bool) {
	t.Helper()
	late := time.After(limit)
	for got := w.all(); len(got) == 0 || !ok(got); got = w.all() {
		select {
		case <-w.woken:
		case <-w.done:
			t.Fatalf("the client has ended before %s: %v", what, w.err)
		case <-late:
			t.Fatalf("%s did not arrive; %d updates did", what, len(got))
		}
	}
}
