package server

// DueBy is dueBy.
var DueBy = dueBy

// SetPace says how many watches a second Drain sends elsewhere.
func (s *Server) SetPace(watches int) { s.pace = watches }

// BoundOpenings sets how many watches are opened at a time and how many may wait.
func (s *Server) BoundOpenings(atATime, waiting int) {
	s.openings.atATime, s.openings.maxWaiting = atATime, waiting
}
