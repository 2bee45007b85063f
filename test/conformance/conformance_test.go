package conformance_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/test/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is the timeout of a case: it does not measure speed.
const limit = time.Minute

// TestGoClient runs every case with the Go client.
func TestGoClient(t *testing.T) {
	for _, c := range conformance.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			if err := conformance.Run(t.Context(), c, goClient, limit); err != nil {
				t.Errorf("%s: %v", c.Rule, err)
			}
		})
	}
}

// goClient is the Go client.
func goClient(ctx context.Context, task conformance.Task, emit func(conformance.Update)) error {
	cfg := client.Config{Endpoints: task.Endpoints}
	if task.Bearer != "" {
		cfg.Token = func() (string, error) { return task.Bearer, nil }
	}
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	rng := client.Between(task.Key, task.RangeEnd)
	switch task.Op {
	case "get":
		r, err := c.Get(ctx, task.Key)
		if err != nil {
			emit(conformance.Update{Error: name(err)})
			return nil
		}
		emit(update("get", r.Position(), nil, []client.KeyValue{*r.KV}, nil))
	case "list":
		l := c.List(ctx, rng)
		var kvs []client.KeyValue
		for kv, err := range l.All() {
			if err != nil {
				return err
			}
			kvs = append(kvs, kv)
		}
		emit(update("list", l.Position(), nil, kvs, nil))
	case "together":
		var g sync.WaitGroup
		for range 2 {
			g.Go(func() { watch(ctx, c, rng, task, emit) })
		}
		defer g.Wait()
		r, err := c.Get(ctx, task.Key)
		if err != nil {
			return err
		}
		emit(update("get", r.Position(), nil, []client.KeyValue{*r.KV}, nil))
	default:
		watch(ctx, c, rng, task, emit)
	}
	<-ctx.Done()
	return nil
}

func watch(ctx context.Context, c *client.Client, rng client.Range, task conformance.Task, emit func(conformance.Update)) {
	var options []client.WatchOption
	switch task.Start {
	case "state":
		options = append(options, client.WithState())
	case "position":
		options = append(options, client.FromPosition(client.Position(task.Position)))
	case "token":
		options = append(options, client.FromToken(task.Token))
	}
	if !task.Units {
		options = append(options, client.WithoutResync())
	}
	if task.ConflateMS > 0 {
		options = append(options, client.WithConflation(time.Duration(task.ConflateMS)*time.Millisecond))
	}
	for u, err := range c.Watch(ctx, rng, options...).Updates() {
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			emit(conformance.Update{Error: name(err)})
			return
		}
		emit(update(u.Kind.String(), u.Position(), u.Events, u.KVs, u.Deleted))
	}
}

func update(kind string, at client.Position, events []client.Event, kvs []client.KeyValue, deleted [][]byte) conformance.Update {
	u := conformance.Update{Kind: kind, Position: conformance.Position(at)}
	for _, e := range events {
		u.Events = append(u.Events, conformance.Event{Type: e.Type.String(), Key: string(e.KV.Key), Value: string(e.KV.Value)})
	}
	for _, kv := range kvs {
		u.KVs = append(u.KVs, conformance.KeyValue{Key: string(kv.Key), Value: string(kv.Value)})
	}
	for _, key := range deleted {
		u.Deleted = append(u.Deleted, string(key))
	}
	return u
}

// name returns a case's word for an error.
func name(err error) string {
	for word, one := range map[string]error{
		"invalid": client.ErrInvalid, "denied": client.ErrDenied, "unauthenticated": client.ErrUnauthenticated,
		"lineage": client.ErrLineage, "unavailable": client.ErrUnavailable,
	} {
		if errors.Is(err, one) {
			return word
		}
	}
	if errors.As(err, new(*client.CompactedError)) {
		return "compacted"
	}
	return err.Error()
}

// TestWrongClientsFail checks that a case fails for a client that does nothing, drops
// deletes, or hands out an event twice.
func TestWrongClientsFail(t *testing.T) {
	change := func(f func(u conformance.Update, emit func(conformance.Update))) conformance.Client {
		return func(ctx context.Context, task conformance.Task, emit func(conformance.Update)) error {
			return goClient(ctx, task, func(u conformance.Update) { f(u, emit) })
		}
	}
	for name, c := range map[string]struct {
		conformance.Client

		of, says string
	}{
		"ends": {func(context.Context, conformance.Task, func(conformance.Update)) error { return nil }, "start-now", "after 0 of 1 updates"},
		"drops deletes": {change(func(u conformance.Update, emit func(conformance.Update)) {
			u.Deleted = nil
			emit(u)
		}), "delta", "something else"},
		"twice": {change(func(u conformance.Update, emit func(conformance.Update)) {
			emit(u)
			emit(u)
		}), "cut", "something else"},
		"forgets its position": {func(ctx context.Context, task conformance.Task, emit func(conformance.Update)) error {
			task.Start = "now"
			return goClient(ctx, task, emit)
		}, "start-position", "resumes at revision 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, one := range conformance.Cases() {
				if one.Name != c.of {
					continue
				}
				if err := conformance.Run(t.Context(), one, c.Client, limit); err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%v, want %q", err, c.says)
				}
			}
		})
	}
}

// TestCommand runs a program as a client: cat prints the task, which is no update with a kind.
func TestCommand(t *testing.T) {
	if _, err := os.Stat("/bin/cat"); err != nil {
		t.Skip("there is no /bin/cat")
	}
	err := conformance.Run(t.Context(), conformance.Cases()[0], conformance.Command("/bin/cat"), limit)
	if err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("cat is a client: %v", err)
	}
}
