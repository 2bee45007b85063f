package api

import (
	"context"
	"errors"
	"time"

	"github.com/shardwatch/shardwatch/internal/data/peerapi"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Copy implements tier.Feeds.
func (s *Server) Copy(ctx context.Context, r source.Resource, follow bool) (peerapi.Resource, error) {
	f := s.feeds.find(r)
	if follow && s.mayHold(r) {
		f = s.feeds.keep(r)
	}
	switch {
	case f == nil && s.feeds.refuses(r):
		return peerapi.Resource{}, &kv.InvalidError{Field: "key", Reason: errNotFollowed.Error()}
	case f == nil, !follow && !f.loaded():
		return peerapi.Resource{}, &kv.NotHereError{}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Patience)
	defer cancel()
	_, err := s.ready(ctx, f)
	switch {
	case errors.Is(err, errNotFollowed):
		s.feeds.refuse(f, err)
		return peerapi.Resource{}, &kv.InvalidError{Field: "key", Reason: err.Error()}
	case err != nil:
		return peerapi.Resource{}, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: kv.RetrySoon, Detail: err.Error()}
	}
	return peerapi.Resource{Cache: f.cache, Direct: f.direct}, nil
}

// Used implements tier.Feeds.
func (s *Server) Used() []source.Resource { return s.feeds.used(time.Now(), s.cfg.Idle) }

// Keep implements tier.Feeds.
func (s *Server) Keep(r source.Resource) {
	if s.mayHold(r) {
		s.feeds.keep(r)
	}
}
