package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/port"
)

// overSocket detects a request for a watch over a WebSocket, which fabric8's client sends by
// default. It returns false for other requests that change the protocol.
func (q *request) overSocket(r *http.Request) bool {
	upgrade := r.Header.Get("Upgrade")
	q.socket = upgrade != ""
	return !q.socket || strings.EqualFold(upgrade, "websocket") && r.ProtoMajor == 1 && r.Header.Get("Sec-WebSocket-Protocol") == ""
}

// serveSocket serves a watch over a WebSocket.
func (s *stream) serveSocket(r *http.Request, state *keytree.Snapshot) {
	s.s.sockets.Add(1)
	defer s.s.sockets.Done()
	s.stuck.End() // the connection gets its own watchdog
	served := false
	websocket.Server{Handler: func(conn *websocket.Conn) {
		var reading sync.WaitGroup
		defer reading.Wait()
		defer conn.Close()
		// The server does not end the context of a hijacked connection.
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		reading.Go(func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, conn) // until the client closes; reads answer pings
		})
		s.w = port.NewSocket(conn)
		s.control = http.NewResponseController(s.w)
		s.stuck = port.NewWatchdog(s.w, s.control, s.s.cfg.WriteTime)
		defer s.stuck.End()
		if served = state == nil || s.initial(state); served {
			s.serve(r.WithContext(ctx))
		}
	}}.ServeHTTP(s.w, r)
	if !served {
		s.free()
	}
}

// drainSockets waits, up to a time, for the end of the watches over WebSockets. The server of the
// port does not track them.
func (s *Server) drainSockets(end time.Time) {
	ended := make(chan struct{})
	go func() {
		s.sockets.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Until(end)):
	}
}

// onlyJSON removes the forms that are not served over WebSockets.
func onlyJSON(forms []form) []form {
	for i, f := range forms {
		if f.enc != object.JSON {
			return forms[:i]
		}
	}
	return forms
}
