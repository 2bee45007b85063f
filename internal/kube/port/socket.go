package port

import (
	"bytes"
	"net/http"
	"time"

	"golang.org/x/net/websocket"
)

// NewSocket returns a writer for an http.ResponseController whose writes are whole events, one per
// line: each becomes a text message of the WebSocket, as at apiservers.
func NewSocket(conn *websocket.Conn) http.ResponseWriter { return &socket{conn: conn} }

type socket struct {
	conn *websocket.Conn
}

// Header implements http.ResponseWriter: the handshake has sent the header.
func (s *socket) Header() http.Header { return http.Header{} }

// WriteHeader implements http.ResponseWriter.
func (s *socket) WriteHeader(int) {}

// Write implements io.Writer. Each line is an event.
func (s *socket) Write(b []byte) (n int, err error) {
	for event := range bytes.Lines(b) {
		if _, err := s.conn.Write(event); err != nil {
			return n, err
		}
		n += len(event)
	}
	return n, nil
}

// FlushError is for http.ResponseController: each message is sent at once.
func (s *socket) FlushError() error { return nil }

// SetWriteDeadline is for http.ResponseController.
func (s *socket) SetWriteDeadline(t time.Time) error { return s.conn.SetWriteDeadline(t) }
