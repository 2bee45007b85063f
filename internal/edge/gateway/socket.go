package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// A WebSocket carries one call, as in etcd (grpc-websocket-proxy): each message of the client is one of the
// request, and each message of the node is one of the answer, in the same format as over HTTP. Browsers cannot
// set headers of a WebSocket, so a token may come as the subprotocol "Bearer, TOKEN" or in the cookie "token".

// isSocket reports whether a request opens a WebSocket.
func isSocket(r *http.Request) bool { return websocket.IsWebSocketUpgrade(r) }

// bearer is the subprotocol that precedes a token.
const bearer = "Bearer"

// fromSocket turns the request of a WebSocket into that of the call.
func fromSocket(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	r.Method = http.MethodPost
	if _, token, ok := strings.Cut(r.Header.Get("Sec-Websocket-Protocol"), bearer+","); ok {
		r.Header.Set("Authorization", bearer+" "+strings.TrimSpace(token))
	}
	if c, err := r.Cookie("token"); err == nil {
		r.Header.Set("Authorization", bearer+" "+c.Value)
	}
	return r
}

// socketBuffer is the receive buffer of a WebSocket, in bytes; sendBuffer is its buffer
// while it sends a message. Larger messages take several writes.
const (
	socketBuffer = 1 << 10
	sendBuffer   = 16 << 10
)

// serveSocket answers the request of a WebSocket. end ends the call.
func (g *Gateway) serveSocket(w http.ResponseWriter, r *http.Request, m *method, b *body, end context.CancelFunc) {
	g.open.Add(1) // before the connection no longer counts
	defer g.open.Done()
	upgrade := websocket.Upgrader{
		ReadBufferSize: socketBuffer, WriteBufferSize: sendBuffer, WriteBufferPool: &g.sending,
		CheckOrigin: func(*http.Request) bool { return true }, // checked by ServeHTTP
		Error:       func(w http.ResponseWriter, _ *http.Request, code int, why error) { http.Error(w, why.Error(), code) },
	}
	var header http.Header
	if strings.HasPrefix(r.Header.Get("Sec-Websocket-Protocol"), bearer) {
		header = http.Header{"Sec-Websocket-Protocol": {bearer}}
	}
	r.Method = http.MethodGet
	conn, err := upgrade.Upgrade(w, r, header)
	if err != nil {
		return // Upgrade has sent the error
	}
	r.Method = http.MethodPost
	conn.SetReadLimit(int64(m.limit))
	stop := context.AfterFunc(r.Context(), func() { _ = conn.Close() })
	defer stop()

	messages, write := io.Pipe()
	b.ReadCloser, b.due = messages, func(at time.Time) { _ = conn.SetReadDeadline(at) }
	b.due(time.Now().Add(messageTimeout))
	r.Body = b
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		defer end() // the client has left
		_ = write.CloseWithError(receive(conn, write, m.many))
	}()
	out := &socketWriter{conn: conn, header: make(http.Header)}
	g.mux.ServeHTTP(&answerWriter{ResponseWriter: out, x: b.x, g: g}, r)
	_ = out.end() // fails if the client has left
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	_ = conn.Close()
	_ = messages.Close()
	<-reading
}

// receive forwards the messages of a client until it leaves, or only the first unless many.
func receive(conn *websocket.Conn, to *io.PipeWriter, many bool) error {
	buffer := make([]byte, socketBuffer)
	for sent := false; ; sent = true {
		_, m, err := conn.NextReader()
		if err != nil {
			return io.EOF
		}
		if sent && !many {
			continue // the call takes one request message
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{m}, buffer); err != nil {
			return err
		}
		if _, err := to.Write([]byte("\n")); err != nil {
			return err
		}
		if !many {
			_ = to.Close()
		}
	}
}

// socketWriter sends the written data as messages, one per line. A last line without a newline is a message,
// too.
type socketWriter struct {
	conn    *websocket.Conn
	header  http.Header
	message io.WriteCloser // nil: no message is open
}

// Header implements http.ResponseWriter. A WebSocket has none.
func (w *socketWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. The message itself reports errors.
func (w *socketWriter) WriteHeader(int) {}

// Flush implements http.Flusher.
func (w *socketWriter) Flush() {}

// Write implements http.ResponseWriter.
func (w *socketWriter) Write(p []byte) (n int, err error) {
	text := bytes.TrimRight(p, "\n")
	if len(text) > 0 && w.message == nil {
		if w.message, err = w.conn.NextWriter(websocket.TextMessage); err != nil {
			return 0, err
		}
	}
	if len(text) > 0 {
		if n, err = w.message.Write(text); err != nil {
			return n, err
		}
	}
	if len(text) < len(p) {
		err = w.end()
	}
	return len(p), err
}

// end ends the open message, if any.
func (w *socketWriter) end() error {
	m := w.message
	if m == nil {
		return nil
	}
	w.message = nil
	return m.Close()
}
