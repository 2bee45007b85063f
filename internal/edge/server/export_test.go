package server

import (
	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/syncbatch"
)

// SetPace says how many watches a second Drain and SendOn send elsewhere.
func (s *Server) SetPace(watches int) { s.pace = watches }

// OpenQueue returns how many watches are being opened and how many wait for that.
func (s *Server) OpenQueue() (running, waiting int) { return s.cfg.OpenQueue.Figures() }

// CacheService returns the service that a client's stream is served by.
func (s *Server) CacheService() shardwatchv1.CacheServiceServer { return s.native.ForClients(&s.pumps) }

// Units returns what has become of units since the start.
func (s *Server) Units() syncbatch.Stats { return s.native.Batches() }
