package client_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// An observer sees each attempt with its node and error, and the resumes and units of all watches.
func TestObserver(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 2})
	cluster.Put("/demo/a", "1")
	var mu sync.Mutex
	var attempts []client.Attempt
	var happened []string
	c := connect(t, cluster, func(cfg *client.Config) {
		cfg.Observer = client.Observer{
			Attempt: func(a client.Attempt) {
				mu.Lock()
				defer mu.Unlock()
				attempts = append(attempts, a)
			},
			Resume: func(r client.Range, x client.Resume) {
				mu.Lock()
				defer mu.Unlock()
				happened = append(happened, fmt.Sprintf("%v resumes at %s", r, x.To))
			},
			Unit: func(r client.Range, kind client.UpdateKind, keys int) {
				mu.Lock()
				defer mu.Unlock()
				happened = append(happened, fmt.Sprintf("%v %v %d", r, kind, keys))
			},
		}
	})
	take := func() []client.Attempt {
		mu.Lock()
		defer mu.Unlock()
		out := attempts
		attempts = nil
		return out
	}
	for what, call := range map[string]func() error{
		"get":    func() error { _, err := c.Get(deadline(t), "/demo/a"); return err },
		"count":  func() error { _, _, err := c.Count(deadline(t), demo); return err },
		"put":    func() error { _, err := c.Put(deadline(t), "/demo/a", []byte("1")); return err },
		"list":   func() error { return drain(c.List(deadline(t), demo), -1) },
		"a part": func() error { return drain(c.List(deadline(t), demo), 1) },
	} {
		err := call()
		if got := take(); err != nil || len(got) != 1 || got[0].Err != nil || !slices.Contains(cluster.Endpoints(), got[0].Node) || got[0].Took <= 0 || !got[0].Range.Contains("/demo/a") {
			t.Errorf("%s: %v, %+v", what, err, got)
		}
	}
	for _, n := range cluster.Nodes() {
		n.RefuseWrites(status.Error(codes.Unknown, "lost"))
	}
	_, err := c.Put(deadline(t), "/demo/a", nil)
	if got := take(); !errors.As(err, new(*client.OutcomeUnknownError)) || len(got) != 1 || got[0].Err == nil {
		t.Errorf("an unconfirmed write: %v, %+v", err, got)
	}

	w := c.Watch(t.Context(), demo, client.WithState())
	waitStarted(t, w)
	serving(t, cluster, w).Kill()
	if _, err := c.Get(deadline(t), "/demo/a"); err != nil {
		t.Fatal(err)
	}
	if got := take(); got[len(got)-1].Err != nil {
		t.Errorf("the last attempt: %+v", got)
	}
	eventually(t, "the state and the resume are observed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		text := strings.Join(happened, ", ")
		return strings.Contains(text, demo.String()+" state 1") && strings.Contains(text, demo.String()+" resumes at "+w.Stats().Node)
	})
}

// drain reads that many keys of a list, -1: all.
func drain(l *client.Listing, keys int) error {
	for _, err := range l.All() {
		if keys--; err != nil || keys == 0 {
			return err
		}
	}
	return nil
}
