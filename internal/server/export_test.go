package server

import shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"

// DueBy is dueBy.
var DueBy = dueBy

// SetPace says how many watches a second Drain and SendOn send elsewhere.
func (s *Server) SetPace(watches int) { s.pace = watches }

// BoundOpenings sets how many watches are opened at a time and how many may wait.
func (s *Server) BoundOpenings(atATime, waiting int) {
	s.openings.atATime, s.openings.maxWaiting = atATime, waiting
}

// CacheService returns the service that a client's stream is served by.
func (s *Server) CacheService() shardwatchv1.CacheServiceServer { return &cacheService{srv: s} }
