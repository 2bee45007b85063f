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

// Apiservers are asked for decisions; a [source.Client].
type Apiservers interface {
	// Post creates an object that is answered and not stored. It returns the apiserver that has
	// answered.
	Post(ctx context.Context, path string, in, out any) (server string, err error)
	// Ready fails while an apiserver is not ready to serve, and has another one asked first.
	Ready(ctx context.Context, server string) error
}

// Config configures a Guard.
type Config struct {
	Apiservers Apiservers
	// Fresh is for how long a decision is used, Stale for how long an allow is
	// while no apiserver answers.
	Fresh, Stale time.Duration
	// Timeout bounds the time of one question, from its turn on. It waits for its turn for half of that at most.
	Timeout time.Duration
	// Bytes bounds the decisions that are kept, and the identities of tokens.
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

// Stats count questions and their answers.
type Stats struct {
	TokenReviews, AccessReviews int64 // that were answered
	Failures                    int64 // that no apiserver answered
	Stale                       int64 // allows that counted because no apiserver answered
	Refused                     int64 // requests that failed for the same reason
	Bytes                       int64 // held
}

// Guard asks apiservers to authenticate and authorize the senders of requests.
type Guard struct {
	cfg Config

	identities *memory[*Identity] // by token
	rejected   *memory[struct{}]  // tokens; apart, so that they push no identity out
	decisions  *memory[bool]
	asking     singleflight.Group
	turns      *fair.Gate // for questions: one client's do not wait for all of another's
	waiting    waiting    // for a turn
	// silent is when the last question was not answered, answered when one was, in nanoseconds of Unix.
	silent, answered atomic.Int64

	tokens, accesses, failures, stale, refused atomic.Int64
}

const (
	// atATime bounds how many questions are open. Those that wait are bounded by their time.
	atATime = 64
	// pause is for how long no apiserver is asked after one has not answered: a
	// request must not wait for each timeout.
	pause = time.Second
	// rejectedPart is the part of Bytes for rejected tokens, identitiesPart that for others.
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
	if known { // others may come from its address
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

// Allow reports whether the sender may read the requested objects. If that is not
// known, it returns the status with which the request fails.
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

// AllowStill reports whether the sender of an open watch may still have it. A sender that
// may watch all of a resource may watch each part of it: one review serves all watches of an
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

// holdsWhole reports whether the last decision about all of the resource was an allow that counts
// while no apiserver answers: open watches may have had no other review for long.
func (g *Guard) holdsWhole(id *Identity, a *Attributes) bool {
	whole := a.Whole()
	allowed, at, known := g.decisions.get(keyOf(id, &whole))
	return known && allowed && time.Since(at) <= g.cfg.Stale
}

// wholeAgain is after what time it is asked again whether an identity may watch all of a
// resource: a refusal costs one review for each of its watches.
const wholeAgain = 5 * time.Minute

// clientOf returns the client of a sender.
func clientOf(id *Identity) string { return "user " + id.User }

// address returns the client of a request whose sender is not known.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

var (
	errSilent = errors.New("no apiserver answers")
	// errLate is for a question that did not get its turn in time, because many clients have some.
	errLate = errors.New("the reviews of many clients wait")
	// errBusy is for a question that did not get its turn in time because of others of its client, while
	// some were answered. The client's last allow does not count: it could keep it by that.
	errBusy = errors.New("too many reviews wait")
)

// fewWaiting is how many questions of a client may wait without being the reason that one gets no turn.
const fewWaiting = 16

// waiting counts questions by client.
type waiting struct {
	mu sync.Mutex
	n  map[string]int // guarded by mu
}

// add counts more of a client's, and returns how many there are then.
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
	case g.answered.Load() < began: // all that have a turn hang
		return nil, errSilent
	case others < fewWaiting:
		return nil, errLate
	}
	return nil, errBusy
}

// ask asks one question, in its client's turn, once for all that wait for its answer.
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
		// Not the caller's context: others wait, too.
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

// refusal decides whether a refusal counts. An apiserver that has just started knows
// neither roles nor service accounts and refuses everything, until it is ready.
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
	return object.Later(fmt.Errorf("who may read this cannot be decided now: %w", err))
}
