package etcdauth

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Checker identifies callers and checks their rights. Create it with New. It denies all reads until Run has an
// answer of etcd.
type Checker struct {
	cfg Config

	rights  atomic.Pointer[known]
	changed wait.Signal
	turn    chan struct{} // held while rights are read from etcd

	tokens  *memory[holder]
	refused *memory[refusal]
	lookups chan struct{} // semaphore of lookups of new tokens

	mu        sync.Mutex
	looks     uint64               // looks begun so far; guarded by mu
	inquiries map[tokenID]*inquiry // guarded by mu
	awayUntil time.Time            // until then, tokens that etcd has accepted are not confirmed again; guarded by mu

	count counters
}

// New returns a Checker. It fails if the Config is invalid.
func New(cfg Config) (*Checker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	g := &Checker{
		cfg:       cfg,
		tokens:    newMemory[holder](cfg.MaxTokens),
		refused:   newMemory[refusal](maxRefused),
		lookups:   make(chan struct{}, cfg.MaxLookups),
		turn:      make(chan struct{}, 1),
		inquiries: make(map[tokenID]*inquiry),
	}
	g.rights.Store(&known{denied: errUnknown()})
	return g, nil
}

// Caller returns the user of the call of ctx; "", which may read everything, while etcd's authentication is
// off. The errors are etcd's.
func (g *Checker) Caller(ctx context.Context) (string, error) {
	now := g.rights.Load()
	switch {
	case now.denied != nil:
		return "", now.denied
	case !now.on:
		return "", nil
	}
	token, ok := tokenOf(ctx)
	if !ok {
		return "", rpctypes.ErrGRPCUserEmpty
	}
	user, err := g.identify(ctx, token, now.revision)
	if err != nil {
		g.count.refused.Add(1)
	}
	return user, err
}

// MayRead fails, with etcd's error, unless the caller may read all of r. A range that ends before it begins
// needs the right to read its start key.
func (g *Checker) MayRead(caller string, r kv.Range) error {
	return g.may(g.rights.Load(), caller, func(t *etcdroles.Table) bool { return t.MayRead(caller, r) })
}

// MayAdminister fails, with etcd's error, unless the caller has etcd's root role.
func (g *Checker) MayAdminister(caller string) error {
	return g.may(g.rights.Load(), caller, func(t *etcdroles.Table) bool { return t.Root(caller) })
}

// MayLook fails, with etcd's error, unless the caller is an etcd user: while etcd's authentication is on, only
// users may read shard map, members and status.
func (g *Checker) MayLook(caller string) error {
	now := g.rights.Load()
	if !now.on && !g.cfg.Etcd.Account() {
		return nil // also while the rights are unknown
	}
	return g.may(now, caller, func(t *etcdroles.Table) bool { return t.Has(caller) })
}

// may fails unless the caller has a right, while etcd's authentication is on.
func (g *Checker) may(now *known, caller string, has func(*etcdroles.Table) bool) error {
	switch {
	case now.denied != nil:
		return now.denied
	case !now.on:
		return nil
	case caller == "": // from before it was on
		return rpctypes.ErrGRPCUserEmpty
	case !has(now.table):
		g.count.denied.Add(1)
		return rpctypes.ErrGRPCPermissionDenied
	}
	return nil
}

// Trouble returns the reason why all reads are denied; "": they are not.
func (g *Checker) Trouble() string {
	if denied := g.rights.Load().denied; denied != nil {
		return rpctypes.ErrorDesc(denied)
	}
	return ""
}

// Changed returns a channel that is closed when rights may have changed. Call it before checking a right.
func (g *Checker) Changed() <-chan struct{} { return g.changed.Wait() }

// Run follows etcd's users and roles until ctx ends.
func (g *Checker) Run(ctx context.Context) error {
	for {
		_, ended := g.cfg.Etcd.AuthOff()
		pause := beat.Until(g.cfg.Poll)
		if !g.proven() {
			g.Reread(ctx)
			pause = g.cfg.Poll - rand.N(g.cfg.Poll/8) // spreads the nodes' questions
		}
		if now := g.rights.Load(); now.denied != nil && !now.on {
			pause = min(pause, soon)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ended:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

// proven reports whether this node knows that authentication is off, and another read of etcd has proved it
// recently. The nodes read etcd's revision every two seconds; a quarter of Poll allows for late reads.
func (g *Checker) proven() bool {
	now := g.rights.Load()
	at, _ := g.cfg.Etcd.AuthOff()
	return now.denied == nil && !now.on && time.Since(at) < g.cfg.Poll*5/4
}

// soon is the retry interval while etcd's authentication is unknown.
const soon = time.Second

// Status is the state of a Checker.
type Status struct {
	// Known reports whether the state of etcd's authentication is known; On whether it is on.
	Known, On bool
	// Revision is that of etcd's users and roles, Users their number.
	Revision uint64
	Users    int
	// Tokens is the number of known tokens.
	Tokens int
	// Counts since the start: lookups of new tokens, tokens confirmed by etcd, calls with a rejected token, and
	// denied reads.
	Lookups, Confirmations, Refused, Denied int64
}

type counters struct{ lookups, confirmations, refused, denied atomic.Int64 }

// Status returns the current state.
func (g *Checker) Status() Status {
	now := g.rights.Load()
	s := Status{
		Known: now.denied == nil, On: now.on, Revision: now.revision, Tokens: g.tokens.size(),
		Lookups: g.count.lookups.Load(), Confirmations: g.count.confirmations.Load(),
		Refused: g.count.refused.Load(), Denied: g.count.denied.Load(),
	}
	if now.table != nil {
		s.Users = now.table.Users()
	}
	return s
}

// away reports whether etcd did not answer a moment ago.
func (g *Checker) away() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.awayUntil)
}

// heard records whether etcd answers.
func (g *Checker) heard(answers bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.awayUntil = time.Time{}
	if !answers {
		g.awayUntil = time.Now().Add(awayFor)
	}
}

// awayFor is how long calls do not wait for etcd after it did not answer. The poll continues to ask it.
const awayFor = 5 * time.Second
