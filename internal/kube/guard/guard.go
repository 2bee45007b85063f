package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kube/object"
)

// Apiservers make the decisions; a [source.Client].
type Apiservers interface {
	// Post creates an object that is answered and not stored. It returns the apiserver that
	// answered.
	Post(ctx context.Context, path string, in, out any) (server string, err error)
	// Ready fails while an apiserver is not ready to serve. Another one is then preferred.
	Ready(ctx context.Context, server string) error
}

// Config configures a Guard.
type Config struct {
	Apiservers Apiservers
	// Fresh is how long a decision is valid, Stale how long an allow is valid
	// while no apiserver answers.
	Fresh, Stale time.Duration
	// Timeout bounds the time of a review after its turn has come. Half of it bounds the wait for the turn.
	Timeout time.Duration
	// Bytes bounds the memory of decisions and of the identities of tokens.
	Bytes  int64
	Logger *slog.Logger
}

// Defaults returns the Config of a production node, without Apiservers.
func Defaults() Config {
	return Config{Fresh: 10 * time.Second, Stale: 5 * time.Minute, Timeout: 3 * time.Second, Bytes: 64 << 20}
}

// Validate returns every mistake, joined.
func (c *Config) Validate() error {
	var errs []error
	if c.Apiservers == nil {
		errs = append(errs, errors.New("kube: Apiservers must be set"))
	}
	if c.Fresh <= 0 || c.Timeout <= 0 || c.Stale < 0 || c.Bytes <= 0 {
		errs = append(errs, errors.New("kube: Fresh, Timeout and Bytes must be above 0, and Stale must not be negative"))
	}
	return errors.Join(errs...)
}

// Stats counts reviews and their results.
type Stats struct {
	TokenReviews, AccessReviews int64 // answered reviews
	Failures                    int64 // reviews that no apiserver answered
	Stale                       int64 // requests allowed by an earlier decision because no apiserver answered
	Refused                     int64 // requests that failed because no apiserver answered
	Bytes                       int64 // memory of decisions and identities
}

// Guard asks apiservers to authenticate and authorize the senders of requests.
type Guard struct {
	cfg Config

	identities *memory[*Identity] // by token
	rejected   *memory[struct{}]  // tokens; separate, so that they do not evict identities
	decisions  *memory[bool]
	asking     singleflight.Group
	turns      *fair.Gate // for reviews: clients take turns
	waiting    waiting    // for a turn
	// silent and answered are when the last review without and with an answer ended, in Unix nanoseconds.
	silent, answered atomic.Int64

	tokens, accesses, failures, stale, refused atomic.Int64
}

const (
	// atATime bounds the concurrent reviews. The time that reviews wait for their turn bounds their number.
	atATime = 64
	// pause is the time without reviews after one was not answered: requests must
	// not wait for each timeout.
	pause = time.Second
	// The memory of rejected tokens is Bytes/rejectedPart, of identities Bytes/identitiesPart.
	rejectedPart, identitiesPart = 16, 4
)

// New returns a guard.
func New(cfg Config) (*Guard, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Guard{
		cfg: cfg, turns: fair.NewGate(atATime, 0),
		rejected:   newMemory[struct{}](cfg.Bytes / rejectedPart),
		identities: newMemory[*Identity](cfg.Bytes / identitiesPart),
		decisions:  newMemory[bool](cfg.Bytes - cfg.Bytes/rejectedPart - cfg.Bytes/identitiesPart),
	}, nil
}

// Stats returns the counts.
func (g *Guard) Stats() Stats {
	return Stats{
		TokenReviews: g.tokens.Load(), AccessReviews: g.accesses.Load(), Failures: g.failures.Load(),
		Stale: g.stale.Load(), Refused: g.refused.Load(),
		Bytes: g.identities.held() + g.rejected.held() + g.decisions.held(),
	}
}

// Identify returns the sender of a request, or the status that it fails with.
func (g *Guard) Identify(r *http.Request) (*Identity, *object.Status) {
	if id := ofCertificate(r, time.Now()); id != nil {
		return id, nil
	}
	token := bearer(r)
	if token == "" {
		return nil, unauthorized("a certificate of the cluster's CA or a bearer token is required")
	}
	k := keyOfToken(token)
	if _, at, ok := g.rejected.get(k); ok && time.Since(at) < g.cfg.Fresh {
		return nil, unauthorized("the token is not valid")
	}
	id, at, known := g.identities.get(k)
	if known && time.Since(at) < g.cfg.Fresh {
		return id, nil
	}
	held := known && time.Since(at) <= g.cfg.Stale
	client := address(r)
	if known { // fairer than the address, which other clients may share
		client = clientOf(id)
	}
	v, err := g.ask(r.Context(), client, "token", k, func(ctx context.Context) (any, error) {
		found, err := g.reviewToken(ctx, token)
		switch {
		case err != nil:
			return nil, err
		case found == nil:
			g.identities.drop(k)
			g.rejected.put(k, struct{}{}, time.Now(), 0)
		default:
			g.identities.put(k, found, time.Now(), found.size())
		}
		return found, nil
	})
	if err != nil {
		if held && !errors.Is(err, errBusy) {
			g.stale.Add(1)
			return id, nil
		}
		return nil, g.later(err)
	}
	if id, _ = v.(*Identity); id == nil {
		return nil, unauthorized("the token is not valid")
	}
	return id, nil
}

// Allow reports whether the sender may read the requested objects. If this cannot be
// decided, it returns the status with which the request fails.
func (g *Guard) Allow(ctx context.Context, id *Identity, a *Attributes) (bool, *object.Status) {
	k := keyOf(id, a)
	allowed, at, known := g.decisions.get(k)
	if known && time.Since(at) < g.cfg.Fresh {
		return allowed, nil
	}
	held := known && allowed && time.Since(at) <= g.cfg.Stale
	v, err := g.ask(ctx, clientOf(id), "access", k, func(ctx context.Context) (any, error) {
		found, err := g.reviewAccess(ctx, id, a)
		if err != nil {
			return nil, err
		}
		g.decisions.put(k, found, time.Now(), 0)
		return found, nil
	})
	if err != nil {
		if !errors.Is(err, errBusy) && (held || (!known || allowed) && g.holdsWhole(id, a)) {
			g.stale.Add(1)
			return true, nil
		}
		return false, g.later(err)
	}
	allowed, _ = v.(bool)
	return allowed, nil
}

// AllowStill reports whether the sender of an open watch still has the right to it. A sender that
// may watch a whole resource may watch each part of it: one review serves all watches of an
// identity, with any selectors. Otherwise each watch has its own review.
func (g *Guard) AllowStill(ctx context.Context, id *Identity, a *Attributes) (bool, *object.Status) {
	whole := a.Whole()
	if whole != *a {
		allowed, at, known := g.decisions.get(keyOf(id, &whole))
		if !known || allowed || time.Since(at) >= wholeAgain {
			if allowed, status := g.Allow(ctx, id, &whole); allowed && status == nil {
				return true, nil
			}
		}
	}
	return g.Allow(ctx, id, a)
}

// holdsWhole reports whether the last decision about the whole resource was an allow that is valid
// while no apiserver answers: open watches may have had no other review for a long time.
func (g *Guard) holdsWhole(id *Identity, a *Attributes) bool {
	whole := a.Whole()
	allowed, at, known := g.decisions.get(keyOf(id, &whole))
	return known && allowed && time.Since(at) <= g.cfg.Stale
}

// wholeAgain is the time after which a refused review of a whole resource is repeated for an
// identity: a refusal costs one more review for each of its watches.
const wholeAgain = 5 * time.Minute

// clientOf returns the client of a sender.
func clientOf(id *Identity) string { return "user " + id.User }

// address returns the client of a request whose sender is unknown.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

var (
	errSilent = errors.New("no apiserver answers")
	// errLate reports that a review did not get its turn in time, because many clients have reviews.
	errLate = errors.New("too many clients wait for reviews")
	// errBusy reports that a review did not get its turn in time because of other reviews of its client,
	// while reviews were answered. The last allow is not valid then: the client could prolong it this way.
	errBusy = errors.New("too many reviews of this client wait")
)

// fewWaiting is the number of waiting reviews of a client from which on these explain that a review gets no turn.
const fewWaiting = 16

// waiting counts waiting reviews by client.
type waiting struct {
	mu sync.Mutex
	n  map[string]int // guarded by mu
}

// add adds to the count of a client, and returns the new count.
func (w *waiting) add(client string, more int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n == nil {
		w.n = make(map[string]int)
	}
	n := w.n[client] + more
	if w.n[client] = n; n == 0 {
		delete(w.n, client)
	}
	return n
}

// turn waits for a client's turn.
func (g *Guard) turn(client string) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout/2)
	defer cancel()
	began := time.Now().UnixNano()
	before := g.waiting.add(client, 1) - 1
	leave, err = g.turns.Wait(ctx, client)
	others := max(before, g.waiting.add(client, -1))
	switch {
	case err == nil:
		return leave, nil
	case g.answered.Load() < began: // all running reviews hang
		return nil, errSilent
	case others < fewWaiting:
		return nil, errLate
	}
	return nil, errBusy
}

// ask makes a review in its client's turn, once for all concurrent callers with the same key.
func (g *Guard) ask(ctx context.Context, client, kind string, k key, question func(context.Context) (any, error)) (any, error) {
	if time.Since(time.Unix(0, g.silent.Load())) < pause {
		return nil, errSilent
	}
	answer := g.asking.DoChan(kind+string(k[:]), func() (any, error) {
		leave, err := g.turn(client)
		if err != nil {
			return nil, err
		}
		defer leave()
		// Not the caller's context: other callers wait, too.
		ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout)
		defer cancel()
		v, err := question(ctx)
		if err != nil {
			g.failures.Add(1)
			g.silent.Store(time.Now().UnixNano())
			g.cfg.Logger.Warn("no apiserver answers a review", "review", kind, "error", err)
			return nil, err
		}
		g.answered.Store(time.Now().UnixNano())
		return v, nil
	})
	select {
	case a := <-answer:
		return a.Val, a.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// refusal fails if a refusal does not count. An apiserver that has just started has not
// loaded roles and service accounts, and refuses everything until it is ready.
func (g *Guard) refusal(ctx context.Context, server string) error {
	if err := g.cfg.Apiservers.Ready(ctx, server); err != nil {
		return fmt.Errorf("refused by an apiserver that is not ready: %w", err)
	}
	return nil
}

func unauthorized(why string) *object.Status {
	return &object.Status{Code: http.StatusUnauthorized, Reason: "Unauthorized", Message: why}
}

// later returns the status of a request that cannot be decided now.
func (g *Guard) later(err error) *object.Status {
	g.refused.Add(1)
	return object.Later(fmt.Errorf("access cannot be reviewed now: %w", err))
}
