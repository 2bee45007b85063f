package server

import (
	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/fair"
)

// DueBy is dueBy.
var DueBy = dueBy

// SetPace says how many watches a second Drain and SendOn send elsewhere.
func (s *Server) SetPace(watches int) { s.pace = watches }

// BoundOpenings sets how many watches are opened at a time and how many may wait.
func (s *Server) BoundOpenings(atATime, waiting int) {
	s.cfg.Openings = fair.NewGate(atATime, waiting)
}

// Openings returns how many watches are being opened and how many wait for that.
func (s *Server) Openings() (running, waiting int) { return s.cfg.Openings.Figures() }

// CacheService returns the service that a client's stream is served by.
func (s *Server) CacheService() shardwatchv1.CacheServiceServer { return &cacheService{srv: s} }
