package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/mirror"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// checked is a client's local copy of a range. The run compares it with etcd whenever the writes
// pause.
type checked struct {
	name string
	r    kv.Range
	m    *mirror.Mirror

	era     int             // the truth's era at the last judgement
	history client.Position // the history at that time, without a revision
}

// historyOf returns the history that a position belongs to.
func historyOf(p client.Position) client.Position {
	p.Revision = 0
	return p
}

// newMirrors starts a mirror of everything and one of a prefix.
func newMirrors(ctx context.Context, c *client.Client, keys keyspace) []*checked {
	var out []*checked
	for _, r := range []kv.Range{kv.Prefix("/"), kv.Prefix(keys.prefix(0))} {
		out = append(out, &checked{
			name: fmt.Sprintf("mirror of %v", r), r: r,
			m: mirror.New(ctx, c, client.Between(r.Start, r.End)),
		})
	}
	return out
}

// judge waits until the mirror has rev and compares it with etcd's state at the mirror's revision,
// because leases expire even without writes.
func (m *checked) judge(ctx context.Context, t *truth, rev int64, within time.Duration) []check.Violation {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	era := t.now.Load().number
	err := poll(ctx, within, "the mirror", func() error {
		if m.era != era && historyOf(m.m.View().Position()) == m.history {
			return errors.New("it has not noticed that etcd was restored")
		}
		return nil
	})
	err = errors.Join(err, m.m.WaitFor(ctx, client.Position{Revision: rev}))
	view := m.m.View()
	m.era, m.history = era, historyOf(view.Position())
	if err == nil {
		err = t.reach(ctx, view.Revision(), within)
	}
	if err != nil {
		return []check.Violation{{
			Promise: check.PromiseEqual, Watcher: m.name, Revision: kv.Revision(rev),
			Expected: "to get there", Got: fmt.Sprintf("revision %d: %v", view.Revision(), err),
		}}
	}
	var got []check.Item
	for k := range view.All() {
		got = append(got, itemFrom(&k))
	}
	at := kv.Revision(view.Revision())
	return check.EqualState(m.name, at, t.history().State(m.r, at), got)
}
