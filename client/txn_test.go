package client_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

func TestTxnChangesAllOrNothing(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	at := cluster.Put("/a", "1")
	missing, present := client.Condition{Key: "/b"}, client.Condition{Key: "/a", ModRevision: at}

	wrote, err := c.Txn(deadline(t), []client.Condition{present, missing}, client.Op{Key: "/a", Value: []byte("2")}, client.Op{Key: "/b", Value: []byte("2")})
	if err != nil || wrote != cluster.At(at+1) {
		t.Fatalf("%v, %v", wrote, err)
	}
	for name, c2 := range map[string]struct {
		conditions []client.Condition
		want       client.ConflictError
	}{
		"another revision": {[]client.Condition{{Key: "/b", ModRevision: at + 1}, present}, client.ConflictError{Condition: present, Current: at + 1}},
		"not missing":      {[]client.Condition{missing}, client.ConflictError{Condition: missing, Current: at + 1}},
		"missing":          {[]client.Condition{{Key: "/c", ModRevision: 7}}, client.ConflictError{Condition: client.Condition{Key: "/c", ModRevision: 7}}},
	} {
		_, err := c.Txn(deadline(t), c2.conditions, client.Op{Key: "/a", Delete: true})
		if got, ok := errors.AsType[*client.ConflictError](err); !ok || *got != c2.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Txn(deadline(t), nil, client.Op{Key: "/a", Delete: true}); err != nil {
		t.Error(err)
	}
	if n, rev, err := c.Count(deadline(t), client.Prefix("/")); n != 1 || rev != at+2 || err != nil {
		t.Errorf("%d keys at %d, %v", n, rev, err)
	}
	for name, ops := range map[string][]client.Op{"no change": nil, "no key": {{}}} {
		if _, err := c.Txn(deadline(t), nil, ops...); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A transaction whose node does not answer may have been applied.
func TestUnconfirmedTxnHasAnUnknownOutcome(t *testing.T) {
	cluster, c := connectedTo(t, func(c *client.Config) { c.AttemptTimeout = 200 * time.Millisecond })
	node := cluster.Nodes()[0]
	node.Stall()
	defer node.Continue()
	var unknown *client.OutcomeUnknownError
	if _, err := c.Txn(deadline(t), nil, client.Op{Key: "/demo/b"}); !errors.As(err, &unknown) || unknown.Node != node.Addr() {
		t.Error(err)
	}
}

// PutIf changes a key only if no other writer has changed it since it was read: concurrent
// writers of a counter write each count once.
func TestPutIfNoOtherHasWritten(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	first, err := c.PutIf(deadline(t), "/demo/n", []byte("0"), 0)
	if err != nil {
		t.Fatal(err)
	}
	var conflict *client.ConflictError
	if _, err := c.PutIf(deadline(t), "/demo/n", []byte("1"), 0); !errors.As(err, &conflict) || conflict.Current != first.Revision {
		t.Errorf("an existing key: %v", err)
	}
	const writers, each = 4, 10
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for n := 0; n < each; {
				r, err := c.Get(deadline(t), "/demo/n")
				if err != nil {
					t.Error(err)
					return
				}
				v, _ := strconv.Atoi(string(r.KV.Value))
				switch _, err := c.PutIf(deadline(t), "/demo/n", []byte(strconv.Itoa(v+1)), r.KV.ModRevision); {
				case err == nil:
					n++
				case !errors.As(err, new(*client.ConflictError)):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if r, err := c.Get(deadline(t), "/demo/n"); err != nil || string(r.KV.Value) != strconv.Itoa(writers*each) {
		t.Errorf("the count is %s, %v", r.KV.Value, err)
	}
	if _, err := c.PutIf(deadline(t), "", nil, 0); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("no key: %v", err)
	}
}

func TestCount(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	c := connect(t, cluster)
	old := cluster.Put("/a", "")
	now := cluster.Put("/b", "")
	cluster.Put("/c", "")
	cluster.Compact(now)
	for name, want := range map[string]struct {
		r    client.Range
		opts []client.ReadOption
		n    int64
	}{
		"all":           {client.Prefix(""), nil, 3},
		"a part":        {client.Between("/b", "/z"), nil, 2},
		"a key":         {client.Key("/b"), nil, 1},
		"none":          {client.Prefix("/d"), nil, 0},
		"at a revision": {client.Prefix("/"), []client.ReadOption{client.AtRevision(now)}, 2},
		"without etcd":  {client.Prefix("/"), []client.ReadOption{client.Serializable(0)}, 3},
	} {
		if n, _, err := c.Count(deadline(t), want.r, want.opts...); n != want.n || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	_, _, err := c.Count(deadline(t), client.Prefix("/"), client.AtRevision(old))
	if gone, ok := errors.AsType[*client.CompactedError](err); !ok || gone.Requested != old || strings.Contains(err.Error(), "oldest") {
		t.Error(err)
	}
	_, _, err = c.Count(deadline(t), client.Prefix("/"), client.AtRevision(now+100))
	if future, ok := errors.AsType[*client.FutureRevisionError](err); !ok || future.Requested != now+100 || strings.Contains(err.Error(), "newest") {
		t.Error(err)
	}
	if _, _, err := c.Count(deadline(t), client.Key("")); !errors.Is(err, client.ErrInvalid) {
		t.Error(err)
	}
	for name, o := range map[string]client.ReadOption{"position": client.AtPosition(cluster.At(now)), "age": client.Serializable(time.Second)} {
		if _, _, err := c.Count(deadline(t), client.Prefix("/"), o); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("with an unsupported %s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := c.Count(ctx, client.Prefix("/")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
