package server

import shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"

// Status returns the node's state with the server's part.
func (s *Server) Status() *shardwatchv1.StatusResponse {
	out := s.cfg.Node.Status()
	out.Connections, out.Watches = s.load()
	return out
}

// load returns how many connections and how many watches of clients are open.
func (s *Server) load() (connections, watches int64) {
	return int64(s.conns.count()), int64(s.native.Watches() + s.etcdWatches())
}
