package etcdauth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// holder is the user of a token.
type holder struct {
	user string
	// claimed: the user is a claim of the token. Otherwise etcd issued the token to the user through a node.
	claimed bool
	// taken is when etcd last accepted the token; zero: not yet.
	taken time.Time
	// revision is the minimum revision of users and roles at etcd at that time; 0: unknown. Each change of them
	// may invalidate tokens.
	revision uint64
}

// need is how urgently etcd must confirm a token.
type need int

const (
	fresh need = iota // no need
	due               // by one caller, while others continue
	must              // before any caller continues
)

func (g *Checker) need(h holder, revision uint64) need {
	age := time.Since(h.taken)
	switch {
	case h.revision < revision, age > g.cfg.Confirm*3/2: // also if etcd has not accepted the token yet
		return must
	case age > g.cfg.Confirm:
		return due
	}
	return fresh
}

// trusted reports whether the token is valid while etcd is unavailable: etcd accepted it before. A claimed user
// is valid only for the users and roles at which etcd accepted the token: earlier, etcd's authentication may
// have been off, when etcd accepts all tokens.
func (h holder) trusted(revision uint64) bool {
	return !h.taken.IsZero() && (!h.claimed || h.revision >= revision)
}

// refusal caches etcd's error for a rejected token, for a short time.
type refusal struct {
	err   error
	until time.Time
}

const (
	maxRefused = 10_000
	// refusedFor is short: another node may learn the token's user from a login.
	refusedFor = 3 * time.Second
)

// inquiry is a lookup of a token, shared by all its callers.
type inquiry struct {
	done   chan struct{} // closed when the fields below are set
	user   string
	err    error
	gaveUp bool // its caller's context ended: others may retry
}

// identify returns the user of the token, valid at a revision of users and roles.
func (g *Checker) identify(ctx context.Context, token string, revision uint64) (string, error) {
	id := idOf(token)
	for {
		h, _ := g.tokens.get(id)
		need := g.need(h, revision)
		if need == fresh { // confirmed recently
			return h.user, nil
		}
		if r, _ := g.refused.get(id); time.Now().Before(r.until) {
			return "", r.err
		}
		q, mine := g.inquire(id)
		if mine {
			// Another inquiry may have ended since the check.
			h, ok := g.tokens.get(id)
			if g.need(h, revision) == fresh {
				q.user = h.user
			} else {
				q.user, q.err = g.find(ctx, token, id, h, ok, revision)
				q.gaveUp = q.err != nil && ctx.Err() != nil
			}
			g.answer(id, q)
			return q.user, q.err
		}
		if need == due {
			return h.user, nil
		}
		if !wait.For(ctx, q.done) {
			return "", fmt.Errorf("look up the token's user: %w", ctx.Err())
		}
		if q.err != nil && !q.gaveUp {
			return "", q.err
		}
	}
}

// inquire returns the running inquiry about a token, or a new one, which the caller must answer.
func (g *Checker) inquire(id tokenID) (q *inquiry, mine bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q := g.inquiries[id]; q != nil {
		return q, false
	}
	q = &inquiry{done: make(chan struct{})}
	g.inquiries[id] = q
	return q, true
}

func (g *Checker) answer(id tokenID, q *inquiry) {
	g.mu.Lock()
	delete(g.inquiries, id)
	g.mu.Unlock()
	close(q.done)
}

// find looks up the user of the token if ok is false, and has etcd confirm the token.
func (g *Checker) find(ctx context.Context, token string, id tokenID, h holder, ok bool, revision uint64) (string, error) {
	began := time.Now()
	if !ok {
		var err error
		if h, err = g.lookup(ctx, token, id); err != nil {
			return "", g.refuse(id, err)
		}
	}
	trusted := h.trusted(revision)
	if trusted && g.away() {
		return h.user, nil
	}
	patience := unknownPatience
	if trusted {
		patience = g.cfg.Patience
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := g.cfg.Etcd.Confirm(within, token)
	if err == nil && h.claimed && h.taken.IsZero() {
		err = g.cfg.Etcd.ConfirmUser(within, token, h.user)
	}
	switch {
	case err == nil:
		g.count.confirmations.Add(1)
		h.taken, h.revision = began, revision
		g.tokens.put(id, h)
		return h.user, nil
	case isRefusal(err):
		g.tokens.drop(id)
		return "", g.refuse(id, err)
	case ctx.Err() != nil:
		return "", fmt.Errorf("look up the token's user: %w", ctx.Err())
	case trusted:
		g.heard(false)
		return h.user, nil
	}
	return "", wire.Status(&kv.UnavailableError{
		Why: kv.EtcdUnavailable, RetryAfter: time.Second, Detail: "etcd does not confirm that the token is valid: " + err.Error(),
	})
}

// unknownPatience bounds the wait of a caller whose token etcd has not accepted yet.
const unknownPatience = 5 * time.Second

// lookup finds the user of a token that is new to this node. etcd must still confirm the token.
func (g *Checker) lookup(ctx context.Context, token string, id tokenID) (holder, error) {
	if len(token) > maxToken {
		return holder{}, rpctypes.ErrGRPCInvalidAuthToken
	}
	select {
	case g.lookups <- struct{}{}:
		defer func() { <-g.lookups }()
	case <-ctx.Done():
		return holder{}, fmt.Errorf("look up the token's user: %w", ctx.Err())
	}
	g.count.lookups.Add(1)
	if user := g.askUser(ctx, id); user != "" {
		h := holder{user: user, taken: time.Now()}
		g.tokens.put(id, h)
		return h, nil
	}
	if user, ok := claim(token); ok {
		return holder{user: user, claimed: true}, nil
	}
	// etcd may accept the token, but its user is unknown here. After this error, etcd's clients log in again.
	return holder{}, rpctypes.ErrGRPCInvalidAuthToken
}

// refuse caches err if etcd has rejected the token, and returns it.
func (g *Checker) refuse(id tokenID, err error) error {
	if isRefusal(err) {
		g.refused.put(id, refusal{err: err, until: time.Now().Add(refusedFor)})
	}
	return err
}

// isRefusal reports whether err is etcd's rejection of a token.
func isRefusal(err error) bool {
	return errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) || errors.Is(err, rpctypes.ErrGRPCAuthOldRevision) || errors.Is(err, rpctypes.ErrGRPCUserEmpty)
}
