package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/policy"
)

// Config is what an Access needs. Set File; Defaults gives the rest.
type Config struct {
	// File is the policy's.
	File string
	// Audit is told what is refused; nil: nobody is.
	Audit  *Audit
	Logger *slog.Logger

	// Poll is how often the files are looked at. Their content counts, and not
	// their times: a mounted Secret changes by a symbolic link.
	Poll time.Duration
	// MaxIdentities bounds the identities whose use is counted apart. Those that
	// come when all are connected share one account.
	MaxIdentities int
}

// Defaults returns the Config of a production node, without its file.
func Defaults() Config { return Config{Poll: 5 * time.Second, MaxIdentities: 10_000} }

// Access is a policy in force. Create it with New; Run follows the files.
type Access struct {
	cfg   Config
	state atomic.Pointer[state]
	count counters
	usage ledger

	mu      sync.Mutex
	tried   [sha256.Size]byte // guarded by mu; the content that was read last, good or not
	changed chan struct{}     // guarded by mu; closed at the next change
}

// state is a policy in force, with the keys of its tokens.
type state struct {
	policy *policy.Policy
	keys   *policy.Keys // nil: no tokens are taken
}

type counters struct {
	denied            [policy.Verbs]atomic.Int64
	limited           [limits]atomic.Int64
	unknown           atomic.Int64
	reloads, failures atomic.Int64
	failing           atomic.Bool
}

// New reads the policy. It fails, with every mistake, when that is wrong.
func New(cfg Config) (*Access, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Access{cfg: cfg, changed: make(chan struct{})}
	a.usage.init(cfg.MaxIdentities)
	s, content, err := read(cfg.File)
	if err != nil {
		return nil, err
	}
	a.tried = content
	a.state.Store(s)
	return a, nil
}

// Check reads a policy and the keys that it names, and returns every mistake.
func Check(file string) (*policy.Policy, error) {
	s, _, err := read(file)
	if err != nil {
		return nil, err
	}
	return s.policy, nil
}

// read reads the files. content stands for what was in them, or for why that
// could not be read.
func read(file string) (s *state, content [sha256.Size]byte, err error) {
	data, err := os.ReadFile(file) //nolint:gosec // the operator names it
	if err != nil {
		return nil, sha256.Sum256([]byte(err.Error())), unreadable(file, err)
	}
	sum := sha256.New()
	_, _ = sum.Write(data)
	s = &state{}
	s.policy, err = policy.Parse(file, data)
	if err == nil && s.policy.Tokens != nil {
		name := s.policy.Tokens.KeysFile
		keys, readErr := os.ReadFile(name) //nolint:gosec // the same
		if err = readErr; err != nil {
			err = fmt.Errorf("%s: tokens.keys: %w", file, unreadable(name, err))
			keys = []byte(err.Error())
		} else {
			s.keys, err = policy.ParseKeys(name, keys)
		}
		_, _ = sum.Write(keys)
	}
	return s, [sha256.Size]byte(sum.Sum(nil)), err
}

func unreadable(file string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: %w", file, err)
}

// Run follows the files until ctx ends. A nil Access has none.
func (a *Access) Run(ctx context.Context) error {
	if a == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(a.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = a.Reload() // the log tells
		case <-ctx.Done():
			return nil
		}
	}
}

// Reload reads the files if they have changed. When they are wrong, the policy
// stays as it was, and the error says what is.
func (a *Access) Reload() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s, content, err := read(a.cfg.File)
	if content == a.tried {
		return err
	}
	a.tried = content
	a.count.failing.Store(err != nil)
	if err != nil {
		a.count.failures.Add(1)
		a.cfg.Logger.Error("the policy is wrong: the one before stays in force", "error", err)
		return err
	}
	a.count.reloads.Add(1)
	a.state.Store(s)
	a.cfg.Logger.Info("the policy has changed", "file", a.cfg.File, "identities", s.policy.Identities(), "roles", len(s.policy.Roles()))
	close(a.changed)
	a.changed = make(chan struct{})
	return nil
}

// Changed is closed when the policy changes: what was allowed may not be any
// more. Take it before you ask. For a nil Access it is nil.
func (a *Access) Changed() <-chan struct{} {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// Status is what metrics tell.
type Status struct {
	// Denied counts calls and watches that were refused or ended, by verb; known
	// under the names of policy.Verb.
	Denied map[string]int64
	// Unauthenticated counts calls whose token was not taken.
	Unauthenticated int64
	// Limited counts what was refused because of a limit, by the limit's name.
	Limited map[string]int64
	// Identities is the number whose use is counted, Shared that of connections
	// on the common account.
	Identities, Shared int64
	// Reloads and Failures count the times that the files were read anew; Failing
	// says that what is in them now is wrong.
	Reloads, Failures int64
	Failing           bool
}

// Status returns figures; false: there is no policy.
func (a *Access) Status() (Status, bool) {
	if a == nil {
		return Status{}, false
	}
	s := Status{
		Denied: make(map[string]int64), Limited: make(map[string]int64),
		Unauthenticated: a.count.unknown.Load(),
		Reloads:         a.count.reloads.Load(), Failures: a.count.failures.Load(), Failing: a.count.failing.Load(),
	}
	for v := range policy.Verbs {
		s.Denied[v.String()] = a.count.denied[v].Load()
	}
	for l := range limits {
		s.Limited[l.String()] = a.count.limited[l].Load()
	}
	s.Identities, s.Shared = a.usage.size()
	return s, true
}
