package authz

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Config configures an Authorizer. Set File; Defaults gives the rest.
type Config struct {
	// File is the policy file.
	File string
	// Audit records refusals; nil: no audit.
	Audit *Audit
	// MaxIdentities bounds the identities with limits of their own. While so many are connected, all others
	// share one set of limits.
	MaxIdentities int
	// RefusalsPerSecond bounds the refusals that an identity receives each second, with a burst of a tenth; see
	// Caller.Refused.
	RefusalsPerSecond int
}

// Defaults returns the Config of a production node, without its file.
func Defaults() Config { return Config{MaxIdentities: 10_000, RefusalsPerSecond: 1000} }

// Authorizer applies a policy. Create it with New.
type Authorizer struct {
	cfg   Config
	state atomic.Pointer[state]
	count counters
	usage ledger

	mu      sync.Mutex
	changed wait.Signal

	connected connected
}

// state is a policy in force, with the keys of its tokens.
type state struct {
	policy *policy.Policy
	keys   *policy.Keys // nil: no tokens are accepted
	// content is the hash of the files.
	content [sha256.Size]byte
}

type counters struct {
	denied  [policy.Verbs]atomic.Int64
	limited [limits]atomic.Int64
	unknown atomic.Int64
	delayed atomic.Int64
}

// New reads the policy. Its error has all mistakes in it.
func New(cfg Config) (*Authorizer, error) {
	a := &Authorizer{cfg: cfg}
	a.usage.init(&a.cfg)
	s, err := read(cfg.File)
	if err != nil {
		return nil, err
	}
	a.state.Store(s)
	return a, nil
}

// Check reads a policy and its keys. Its error has all mistakes in them.
func Check(file string) (*policy.Policy, error) {
	s, err := read(file)
	if err != nil {
		return nil, err
	}
	return s.policy, nil
}

// read reads and parses the files.
func read(file string) (*state, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the operator names it
	if err != nil {
		return nil, unreadable(file, err)
	}
	s := &state{}
	if s.policy, err = policy.Parse(file, data); err != nil {
		return nil, err
	}
	if t := s.policy.Tokens; t != nil {
		keys, err := os.ReadFile(t.KeysFile) //nolint:gosec // the operator names it in the file
		if err != nil {
			return nil, fmt.Errorf("%s: tokens.keys: %w", file, unreadable(t.KeysFile, err))
		}
		if s.keys, err = policy.ParseKeys(t.KeysFile, keys); err != nil {
			return nil, err
		}
		data = append(data, keys...)
	}
	s.content = sha256.Sum256(data)
	return s, nil
}

func unreadable(file string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: %w", file, err)
}

// Files returns the files in use: the policy, and the keys of tokens. A nil Authorizer has none.
func (a *Authorizer) Files() []string {
	if a == nil {
		return nil
	}
	files := []string{a.cfg.File}
	if t := a.state.Load().policy.Tokens; t != nil {
		files = append(files, t.KeysFile)
	}
	return files
}

// Reload reads the files again. If they have mistakes, the policy stays as it was, and the error has all of
// them. Connections of identities that have lost their last right end after farewell.
func (a *Authorizer) Reload() error {
	if a == nil {
		return nil
	}
	s, err := read(a.cfg.File)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state.Swap(s).content != s.content {
		a.changed.Notify()
		time.AfterFunc(farewell, a.cut)
	}
	return nil
}

// TakesTokens reports whether the policy accepts bearer tokens. A nil Authorizer accepts none.
func (a *Authorizer) TakesTokens() bool { return a != nil && a.state.Load().keys != nil }

// Changed returns a channel that is closed when the policy changes: the new policy may deny calls that this one
// allows. Call it before checking a right. For a nil Authorizer it returns nil.
func (a *Authorizer) Changed() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.changed.Wait()
}

// Status has the figures of the metrics.
type Status struct {
	// Denied counts calls and watches that were refused or ended, by verb.
	Denied map[string]int64
	// Unauthenticated counts calls with a rejected token.
	Unauthenticated int64
	// Limited counts requests refused by a limit, by the limit's name.
	Limited map[string]int64
	// Delayed counts refused calls whose answer had to wait; see Caller.Refused.
	Delayed int64
	// Identities is the number of identities with counts of their own, Shared the number of connections that
	// share one set of limits.
	Identities, Shared int64
}

// Status returns the figures; a nil Authorizer has zeros.
func (a *Authorizer) Status() Status {
	s := Status{Denied: make(map[string]int64), Limited: make(map[string]int64)}
	if a == nil {
		a = &Authorizer{}
	}
	for v := range policy.Verbs {
		s.Denied[v.String()] = a.count.denied[v].Load()
	}
	for l := range limits {
		s.Limited[l.String()] = a.count.limited[l].Load()
	}
	s.Unauthenticated, s.Delayed = a.count.unknown.Load(), a.count.delayed.Load()
	s.Identities, s.Shared = a.usage.size()
	return s
}
