package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// tokenSource is a source of bearer tokens that may be unavailable.
type tokenSource struct {
	away   atomic.Bool
	missed atomic.Int64 // failed requests
}

func (s *tokenSource) configure(c *client.Config) {
	c.Token = func() (string, error) {
		if s.away.Load() {
			s.missed.Add(1)
			return "", errors.New("the token source is away")
		}
		return "token", nil
	}
}

// While no tokens are available, a watch that needs none continues, because its connection
// is still valid.
func TestAFailingTokenSourceLeavesRunningWatchesAlone(t *testing.T) {
	t.Parallel() // it takes two of the follower's intervals
	cluster := start(t, clienttest.Config{Nodes: 1})
	var source tokenSource
	patient := func(c *client.Config) { c.Silence = patience } // so that a slow machine does not count as a silent node
	w := connect(t, cluster, source.configure, patient).Watch(t.Context(), demo)
	waitStarted(t, w)
	source.away.Store(true)
	// The follower of the map probes its node.
	eventually(t, "tokens are requested", func() bool { return source.missed.Load() >= 2 })
	rev := cluster.Put("/demo/a", "1")
	if u, err := w.Next(deadline(t)); err != nil || u.Revision != rev {
		t.Errorf("got %+v, %v", u, err)
	}
	source.away.Store(false)
	if s := w.Stats(); s.Resumes != 0 || !s.Attached {
		t.Errorf("%+v", s)
	}
}

// A watch that loses its node while no tokens are available resumes as soon as they are
// available again, and misses no event. Meanwhile it reports the reason.
func TestAWatchOutlivesAFailureOfTheTokenSource(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 2})
	var source tokenSource
	c := connect(t, cluster, source.configure)
	w := c.Watch(t.Context(), demo, client.FromRevision(2))
	node := serving(t, cluster, w)
	source.away.Store(true)
	node.CutAfter(1)
	cluster.Put("/demo/a", "1")
	eventually(t, "tokens are requested", func() bool { return source.missed.Load() >= 5 })
	if s := w.Stats(); w.Err() != nil || s.Attached || !errors.Is(s.LastError, client.ErrUnauthenticated) || !strings.Contains(s.LastError.Error(), "the token source is away") {
		t.Errorf("without tokens: %v, %+v", w.Err(), s)
	}
	source.away.Store(false)
	rev := cluster.Put("/demo/b", "2")
	follow(t, cluster, w, &seen{rng: demo}, rev, 1)
	if s := w.Stats(); s.LastError != nil {
		t.Errorf("attached, but the last error is %v", s.LastError)
	}
}

// A node that refuses one token may accept the next.
func TestAWatchContinuesWithTheNextToken(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	expired := &pb.Ended{Reason: pb.EndReason_END_REASON_UNAUTHENTICATED, Message: "the token has expired"}
	cluster.Nodes()[0].RefuseWatches(expired)
	var source tokenSource
	w := connect(t, cluster, source.configure).Watch(t.Context(), demo, client.FromRevision(2))
	eventually(t, "the watch was refused", func() bool {
		s := w.Stats()
		return errors.Is(s.LastError, client.ErrUnauthenticated) && strings.Contains(s.LastError.Error(), "has expired")
	})
	cluster.Nodes()[0].RefuseWatches(nil)
	rev := cluster.Put("/demo/a", "1")
	follow(t, cluster, w, &seen{rng: demo}, rev, 1)

	cluster.Nodes()[0].RefuseWatches(expired)
	if _, err := connect(t, cluster).Watch(t.Context(), demo).Next(deadline(t)); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("without a token: %v", err)
	}
}

// A read waits for credentials as long as for a node, and then fails with
// ErrUnauthenticated, not with ErrUnavailable.
func TestAReadWaitsForCredentials(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	var source tokenSource
	c := connect(t, cluster, source.configure)
	if _, err := c.Put(deadline(t), "/demo/a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	source.away.Store(true)
	go func() {
		for source.missed.Load() < 3 {
			time.Sleep(time.Millisecond)
		}
		source.away.Store(false)
	}()
	if _, err := c.Get(deadline(t), "/demo/a"); err != nil {
		t.Error(err)
	}
	brief := connect(t, cluster, source.configure, func(c *client.Config) { c.RetryFor = 100 * time.Millisecond })
	source.away.Store(true)
	for name, err := range map[string]error{
		"get": func() error { _, err := brief.Get(deadline(t), "/demo/a"); return err }(),
		"put": func() error { _, err := brief.Put(deadline(t), "/demo/a", nil); return err }(),
	} {
		if !errors.Is(err, client.ErrUnauthenticated) || errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A refused password is not sent again until its file is replaced: each check costs etcd as
// much as a thousand reads.
func TestARefusedPasswordIsNotSentForEveryAttempt(t *testing.T) {
	name := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	cluster := start(t, clienttest.Config{})
	cluster.Authenticate(map[string]string{"ann": "new"})
	c := connect(t, cluster, func(c *client.Config) {
		c.Username, c.PasswordFrom, c.RetryFor = "ann", client.PasswordFile(name), 500*time.Millisecond
	})
	var watches []*client.Watcher
	for range 20 {
		watches = append(watches, c.Watch(t.Context(), demo))
	}
	if _, err := c.Get(deadline(t), "/demo/a"); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("a wrong password: %v", err)
	}
	if n := cluster.Logins(); n > 2 {
		t.Errorf("logged in %d times", n)
	}
	write("new")
	for _, w := range watches {
		waitStarted(t, w)
		if w.Err() != nil {
			t.Error(w.Err())
		}
	}
}
