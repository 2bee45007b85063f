package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait of a test. A passing test never reaches it.
const patience = 60 * time.Second

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// follower takes the updates of a Follow one at a time.
type follower struct {
	t       *testing.T
	updates chan kv.Update
	err     chan error // receives one error when the Follow has ended
	stop    func()
}

func follow(t *testing.T, c *Client, req kv.FollowRequest) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{t: t, updates: make(chan kv.Update), err: make(chan error, 1)}
	ended := make(chan struct{})
	f.stop = func() { cancel(); <-ended }
	t.Cleanup(f.stop)
	go func() {
		defer close(ended)
		var last error
		n := 0
		for u, err := range c.Follow(ctx, req) {
			if err != nil {
				last, n = err, n+1
				continue
			}
			if n > 0 {
				t.Error("an update followed an error")
			}
			select {
			case f.updates <- u:
			case <-ctx.Done():
				return
			}
		}
		if n != 1 && ctx.Err() == nil {
			t.Errorf("Follow ended with %d errors, want one", n)
		}
		f.err <- last
	}()
	return f
}

// next returns the next update.
func (f *follower) next() kv.Update {
	f.t.Helper()
	select {
	case u := <-f.updates:
		return u
	case err := <-f.err:
		f.t.Fatalf("Follow ended: %v", err)
	case <-time.After(patience):
		f.t.Fatal("no update arrived")
	}
	return kv.Update{}
}

// nextOf returns the next update of a kind and skips progress.
func (f *follower) nextOf(kind kv.UpdateKind) kv.Update {
	f.t.Helper()
	for {
		u := f.next()
		if u.Kind == kind {
			return u
		}
		if u.Kind != kv.UpdateProgress {
			f.t.Fatalf("got an update of kind %d, want %d: %+v", u.Kind, kind, u)
		}
	}
}

// ready returns the begin and the state of a Follow.
func (f *follower) ready() (begin kv.Update, state []*kv.KeyValue) {
	f.t.Helper()
	begin = f.next()
	if begin.Kind != kv.UpdateBegin {
		f.t.Fatalf("the first update is of kind %d", begin.Kind)
	}
	for {
		switch u := f.next(); u.Kind {
		case kv.UpdateState:
			state = append(state, u.KVs...)
		case kv.UpdateReady:
			return begin, state
		default:
			f.t.Fatalf("an update of kind %d before ready", u.Kind)
		}
	}
}

// failure skips updates, and returns the error that ends the Follow.
func (f *follower) failure() error {
	f.t.Helper()
	for {
		select {
		case <-f.updates:
		case err := <-f.err:
			return err
		case <-time.After(patience):
			f.t.Fatal("Follow did not end")
		}
	}
}
