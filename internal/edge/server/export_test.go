package server

import (
	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/syncbatch"
)

// SetPace sets how many watches per second Drain and SendOn send elsewhere.
func (s *Server) SetPace(watches int) { s.pace = watches }

// OpenQueue returns the number of watches that are being opened, and of those that wait for that.
func (s *Server) OpenQueue() (running, waiting int) { return s.cfg.OpenQueue.Figures() }

// CacheService returns the service that serves clients' streams.
func (s *Server) CacheService() shardwatchv1.CacheServiceServer { return s.native.ForClients(&s.pumps) }

// Units returns the statistics of units since the start.
func (s *Server) Units() syncbatch.Stats { return s.native.Batches() }
