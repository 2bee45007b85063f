package server

// DueBy is dueBy.
var DueBy = dueBy

// SetPace says how many watches a second Drain sends elsewhere.
func (s *Server) SetPace(watches int) { s.pace = watches }
