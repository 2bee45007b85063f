package grpcserver

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/callhead"
)

// web is a request for Config.HTTP, which is not a gRPC call: its http.ResponseWriter and its
// body. http.ResponseController supports its Flush and deadlines.
type web struct {
	*stream
	request *http.Request // nil: its path is malformed

	// Owned by the handler.
	header http.Header
	wrote  bool   // WriteHeader was called
	parked bool   // see Park
	rest   []byte // unread bytes of the body

	mu   sync.Mutex
	late [2]*time.Timer // guarded by mu; deadlines of reading and writing; nil: never set
}

// openWebLocked opens the stream of a request that is not a gRPC call.
func (c *conn) openWebLocked(f *http2.MetaHeadersFrame, r *callhead.Request) *stream {
	s := newStream(c, f.StreamID, &callhead.Request{Path: r.Path, Length: r.Length})
	s.cancel()
	s.ctx, s.cancel = context.WithCancel(c.base)
	s.web = &web{stream: s, header: make(http.Header)}
	s.web.request = s.web.requestOf(f, r)
	return s
}

// requestOf returns the request of a header list; nil: its path is malformed.
func (w *web) requestOf(f *http2.MetaHeadersFrame, r *callhead.Request) *http.Request {
	out := r.Web(f)
	if out == nil {
		return nil
	}
	out.RemoteAddr = w.conn.net.RemoteAddr().String()
	if !f.StreamEnded() {
		out.Body = webBody{w}
	}
	if p, ok := peer.FromContext(w.ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			out.TLS = &info.State
		}
	}
	return out.WithContext(w.ctx)
}

// serve answers the request. It reports whether the answer has ended.
func (w *web) serve(h http.Handler) (ended bool) {
	defer func() {
		if ended {
			w.stop()
		}
	}()
	defer func() {
		if v := recover(); v == http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			ended = true
			w.abort()
		} else if v != nil {
			panic(v)
		}
	}()
	if w.request == nil {
		w.WriteHeader(http.StatusBadRequest)
	} else {
		h.ServeHTTP(w, w.request)
	}
	if w.parked {
		return false
	}
	w.end()
	return true
}

// Header implements http.ResponseWriter.
func (w *web) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *web) WriteHeader(code int) {
	if w.wrote || code < http.StatusOK { // informational responses are not sent
		return
	}
	w.wrote = true
	c := w.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = w.sendHeaderLocked(code, nil) // after an error, writes fail
}

// sendHeaderLocked sends the response headers. wait is as in waitForRoomLocked.
func (w *web) sendHeaderLocked(code int, wait *announcement) error {
	c := w.conn
	if w.waitForRoomLocked(wait); w.gone {
		return contextStatus(w.ctx)
	}
	w.headed = true
	b := startBlock(c)
	b.Field(":status", strconv.Itoa(code))
	for name, values := range w.header {
		name = strings.ToLower(name)
		if callhead.OfConnection(name) {
			continue
		}
		for _, v := range values {
			b.Field(name, v)
		}
	}
	if !c.appendBlockLocked(b, w.id, 0) {
		return w.overflowLocked()
	}
	return nil
}

// Write implements http.ResponseWriter. It waits while the client does not accept the bytes.
func (w *web) Write(p []byte) (int, error) {
	if !w.parked && (w.request == nil || w.request.Method == http.MethodHead) || len(p) == 0 {
		w.WriteHeader(http.StatusOK)
		return len(p), nil
	}
	if !w.wrote { // once the answer is parked, a pump may read wrote
		w.wrote = true // headers and bytes leave together: a broken connection has sent both or neither
	}
	if err := w.send(false, nil, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush implements http.Flusher.
func (w *web) Flush() { _ = w.FlushError() }

// FlushError writes the buffered bytes to the connection.
func (w *web) FlushError() error {
	w.WriteHeader(http.StatusOK)
	w.stream.Flush()
	return nil
}

// SetReadDeadline makes reads of the body fail from then on; the zero time: never.
func (w *web) SetReadDeadline(at time.Time) error {
	w.at(0, at, w.StopReceiving)
	return nil
}

// SetWriteDeadline ends the stream at a time, unless the deadline is moved before; the zero time:
// never.
func (w *web) SetWriteDeadline(at time.Time) error {
	w.at(1, at, w.abort)
	return nil
}

func (w *web) at(which int, at time.Time, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch t := w.late[which]; {
	case t == nil && !at.IsZero():
		w.late[which] = time.AfterFunc(time.Until(at), do)
	case t != nil && at.IsZero():
		t.Stop()
	case t != nil:
		t.Reset(time.Until(at))
	}
}

func (w *web) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.late {
		if t != nil {
			t.Stop()
		}
	}
}

// end ends the answer.
func (w *web) end() {
	w.WriteHeader(http.StatusOK)
	c := w.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.waitForRoomLocked(nil); !w.gone {
		w.endLocked()
	}
}

func (w *web) endLocked() {
	c := w.conn
	c.out.head(http2.FrameData, http2.FlagDataEndStream, w.id, 0)
	c.keep.sent()
	if w.halfClosed {
		c.leaveLocked(w.stream)
	} else {
		c.resetLocked(w.id, http2.ErrCodeNo) // the client need not send the rest: RFC 9113, 8.1
	}
	c.flushLocked()
}

// Cut ends an incomplete answer as if it were complete: the end of a stream needs no window. A waiting write
// fails. If no headers were sent, the client may retry the request. Any goroutine may call Cut until the end.
func (w *web) Cut() {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	if w.headed && !w.gone {
		w.endLocked()
	} else if !w.gone {
		w.conn.resetLocked(w.id, http2.ErrCodeRefusedStream)
		w.conn.flushLocked()
	}
}

// abort resets the stream, so that the client detects the incomplete answer.
func (w *web) abort() {
	c := w.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !w.gone {
		c.resetLocked(w.id, http2.ErrCodeInternal)
		c.flushLocked()
	}
}

// webBody is the body of a request.
type webBody struct{ *web }

// Read implements io.Reader.
func (b webBody) Read(p []byte) (int, error) {
	if len(b.rest) == 0 && len(p) > 0 {
		in, err := b.take(1)
		if errors.Is(err, errDeaf) {
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			return 0, err
		}
		b.web.rest = in
	}
	n := copy(p, b.rest)
	b.web.rest = b.rest[n:]
	return n, nil
}

// Close implements io.Closer. Unread bytes are discarded with the stream.
func (webBody) Close() error { return nil }
