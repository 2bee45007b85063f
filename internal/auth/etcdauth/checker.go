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

// Checker identifies callers and their read rights. Create it with New; it knows
// nothing, and denies all reads, until Run has heard of etcd.
type Checker struct {
	cfg Config

	rights  atomic.Pointer[known]
	changed wait.Signal
	turn    chan struct{} // held while the rights of users are read from etcd

	tokens  *memory[holder]
	refused *memory[refusal]
	lookups chan struct{} // a place for each new token

	mu        sync.Mutex
	looks     uint64               // begun so far; guarded by mu
	inquiries map[tokenID]*inquiry // guarded by mu
	awayUntil time.Time            // until when etcd is not asked about tokens it has taken before; guarded by mu

	count counters
}

// New returns a Checker. It fails when the Config is wrong.
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

// Caller returns the user of the call of ctx; "", with the right to read everything, while etcd's
// authentication is off. The errors are etcd's.
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

// MayRead fails, with etcd's error, when the caller may not read all of r. A
// range that ends before it begins needs the right to read its key.
func (g *Checker) MayRead(caller string, r kv.Range) error {
	return g.may(g.rights.Load(), caller, func(t *etcdroles.Table) bool { return t.MayRead(caller, r) })
}

// MayAdminister fails, with etcd's error, unless the caller has etcd's root role.
func (g *Checker) MayAdminister(caller string) error {
	return g.may(g.rights.Load(), caller, func(t *etcdroles.Table) bool { return t.Root(caller) })
}

// MayLook fails, with etcd's error, unless the caller is one of etcd's users: shard map,
// members and status are for users alone, while etcd's authentication is on.
func (g *Checker) MayLook(caller string) error {
	now := g.rights.Load()
	if !now.on && !g.cfg.Etcd.Account() {
		return nil // also while the rights are not known
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
	case caller == "": // of before it was on
		return rpctypes.ErrGRPCUserEmpty
	case !has(now.table):
		g.count.denied.Add(1)
		return rpctypes.ErrGRPCPermissionDenied
	}
	return nil
}

// Trouble explains why all reads are denied; "": they are not.
func (g *Checker) Trouble() string {
	if denied := g.rights.Load().denied; denied != nil {
		return rpctypes.ErrorDesc(denied)
	}
	return ""
}

// Changed is closed when rights may have changed. Take it before you ask.
func (g *Checker) Changed() <-chan struct{} { return g.changed.Wait() }

// Run keeps up with etcd until ctx ends.
func (g *Checker) Run(ctx context.Context) error {
	for {
		_, ended := g.cfg.Etcd.AuthOff()
		pause := beat.Until(g.cfg.Poll)
		if !g.proven() {
			g.Reread(ctx)
			pause = g.cfg.Poll - rand.N(g.cfg.Poll/8) // or all nodes ask at once
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

// proven reports whether another read has proved that authentication is off, as is known here.
// The nodes' reads of etcd's revision do so every two seconds; a quarter of Poll is for late ones.
func (g *Checker) proven() bool {
	now := g.rights.Load()
	at, _ := g.cfg.Etcd.AuthOff()
	return now.denied == nil && !now.on && time.Since(at) < g.cfg.Poll*5/4
}

// soon is how soon it is tried again while nothing is known.
const soon = time.Second

// Status is the state of a Checker.
type Status struct {
	// Known reports whether etcd has said whether authentication is on; On whether
	// it is.
	Known, On bool
	// Revision is that of etcd's users and roles, Users their number.
	Revision uint64
	Users    int
	// Tokens is the number of tokens that are remembered.
	Tokens int
	// Counts since the start: tokens looked up because they were new here, tokens confirmed by
	// etcd, calls with a rejected token, and denied reads.
	Lookups, Confirmations, Refused, Denied int64
}

type counters struct{ lookups, confirmations, refused, denied atomic.Int64 }

// Status returns the state as of now.
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

// heard notes whether etcd answers.
func (g *Checker) heard(answers bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.awayUntil = time.Time{}
	if !answers {
		g.awayUntil = time.Now().Add(awayFor)
	}
}

// awayFor is how long calls do not wait for an etcd that did not answer. It is
// asked again meanwhile, by the poll.
const awayFor = 5 * time.Second
