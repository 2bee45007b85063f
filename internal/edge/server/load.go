package server

import shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"

// Status returns the state of the node, including the server.
func (s *Server) Status() *shardwatchv1.StatusResponse {
	out := s.cfg.Node.Status()
	out.Connections, out.Watches = s.load()
	return out
}

// load returns the numbers of open connections and of open watches of clients.
func (s *Server) load() (connections, watches int64) {
	return int64(s.conns.count()), int64(s.native.Watches() + s.etcdWatches())
}
