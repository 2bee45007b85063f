package etcdconn

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// ErrUnavailable reports that no endpoint of etcd answers, or that none of the
// answering members has a leader. Such errors are also a *kv.UnavailableError.
var ErrUnavailable = errors.New("etcd is unavailable")

// ErrTooLarge reports that a response exceeded our size limit.
var ErrTooLarge = errors.New("the response exceeds the size limit of a message")

// ErrToken reports that etcd no longer accepts our token.
var ErrToken = errors.New("etcd requires a new login")

// Unavailable returns an error that is ErrUnavailable, a *kv.UnavailableError
// and cause.
func Unavailable(deed string, cause error) error {
	return &unavailableError{deed: deed, cause: cause}
}

type unavailableError struct {
	deed  string
	cause error
}

func (e *unavailableError) Error() string {
	return fmt.Sprintf("%s: %v: %s", e.deed, ErrUnavailable, wire.Plain(e.cause))
}

func (e *unavailableError) Unwrap() []error {
	return []error{ErrUnavailable, &kv.UnavailableError{Why: kv.EtcdUnavailable, Detail: e.Error(), RetryAfter: time.Second}, e.cause}
}

// IsUnavailable reports whether the call may succeed at another endpoint, or later.
func IsUnavailable(err error) bool {
	return wire.IsUnavailable(err) || Is(err, rpctypes.ErrGRPCNotSupportedForLearner)
}

// isToken reports whether a new login would help against err.
func isToken(err error) bool {
	return err != nil && WantsLogin(err.Error())
}

// WantsLogin reports whether etcd's reason, an error's or a cancelled watch's, says that a new
// login would help. A watch reports its reason only as text (v3rpc/watch.go), so WantsLogin
// compares text.
func WantsLogin(reason string) bool {
	for _, err := range []error{rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCUserEmpty} {
		if strings.Contains(reason, rpctypes.ErrorDesc(err)) {
			return true
		}
	}
	return false
}

// Is reports whether etcd's answer err is the error known of rpctypes.
func Is(err, known error) bool {
	return err != nil && rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(known)
}

// situation logs when etcd becomes unreachable or reachable, once each.
type situation struct {
	log *slog.Logger

	mu   sync.Mutex
	down bool      // guarded by mu
	at   time.Time // since when; guarded by mu
}

func (s *situation) lost(err error) {
	s.mu.Lock()
	was := s.down
	if !was {
		s.down, s.at = true, time.Now()
	}
	s.mu.Unlock()
	if !was {
		s.log.Warn("etcd is unavailable: cached data stays readable, writes fail, retrying", "error", err)
	}
}

func (s *situation) back() {
	s.mu.Lock()
	was, at := s.down, s.at
	s.down = false
	s.mu.Unlock()
	if was {
		s.log.Info("etcd is available again", "after", time.Since(at).Round(time.Millisecond))
	}
}

// Broken returns the error of a call of deed that failed without an answer: it is ErrUnavailable, ErrToken or
// ErrTooLarge if etcd reports it.
func Broken(deed string, err error) error {
	if IsUnavailable(err) || errors.Is(err, errAttempt) {
		return Unavailable(deed, err)
	}
	if isToken(err) {
		return fmt.Errorf("%s: %w: %w", deed, ErrToken, err)
	}
	if wire.IsExhausted(err) {
		return fmt.Errorf("%s: %w: %w", deed, ErrTooLarge, err)
	}
	return fmt.Errorf("%s: %w", deed, err)
}
