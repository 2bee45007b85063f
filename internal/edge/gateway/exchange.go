package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// answerCost is the memory of a decoded message per byte of its wire form, in bytes: its fields, and its JSON
// in a growing buffer. A list of small keys takes seven times its wire form.
const answerCost = 8

// The memory of a request, in bytes, per byte of JSON and per object: an empty object, {}, takes three bytes in
// a list and becomes a message of some hundred bytes.
const (
	byteCost   = 6
	objectCost = 512
)

// maxObjects bounds the objects of a request message. By default, etcd accepts 128 operations in a transaction.
const maxObjects = 16 << 10

// maxDepth bounds the nesting of objects and lists in a request: 199 transactions of three levels each. The
// decoder is recursive: 3,300 transactions, the deepest that encoding/json accepts, take 11 to 15 ms and a
// stack of 8 MiB, which grows by copying it.
const maxDepth = 600

// A request, and an answer of at most little bytes, waits for memory for patience. A larger answer does not
// wait: it is in memory already.
const (
	patience = 2 * time.Second
	little   = 64 << 10
)

// exchange is a request and its answer. It holds a part of the node's memory for
// clients until both are done.
type exchange struct {
	memory *budget.Budget
	holder budget.Client // owner of the reservations
	method *method       // the admitted method
	pace   *pace         // of a connection that only this exchange writes to; nil: none, or its writes block

	streams sync.WaitGroup // running handlers

	mu       sync.Mutex
	request  *budget.Reservation // guarded by mu
	answer   *budget.Reservation // guarded by mu
	held     int64               // guarded by mu; bytes of answer
	kept     mem.BufferSlice     // until it is written; owned by the HTTP handler
	form     *form               // of kept; owned by the HTTP handler
	finished bool                // guarded by mu
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// in returns ctx with the exchange attached.
func (x *exchange) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// end releases all memory. The handlers must be about to return.
func (x *exchange) end() {
	x.endTurn()
	x.streams.Wait()
	x.kept.Free()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.finished = true
	if x.request != nil {
		x.request.Release()
	}
	if x.held > 0 {
		x.answer.Release()
	}
}

// endTurn ends the turn in which a watch message is written, if there is one. The HTTP handler calls it.
func (x *exchange) endTurn() {
	if x.pace != nil {
		x.pace.end()
	}
}

// hold reserves n bytes for an answer, in place of the reservation for the previous one. If only is set, the
// answer is the call's only one and waits at most patience; an answer of a stream waits until ctx ends. hold
// reserves at most half of the client's part, so that answers of any size are possible: the requests of open
// watches hold some of the part.
func (x *exchange) hold(ctx context.Context, n int64, only bool) error {
	x.wrote()
	n = min(n, x.memory.Part(x.holder, budget.JSON)/2)
	if only {
		var cancel context.CancelFunc
		waits := patience
		if n > little {
			waits = 0
		}
		ctx, cancel = context.WithTimeout(ctx, waits)
		defer cancel()
	}
	r, err := x.memory.ReserveAnnounced(ctx, x.holder, budget.JSON, n, x.endTurn)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.finished { // the client has left
		r.Release()
		return context.Canceled
	}
	x.answer, x.held = r, n
	return nil
}

// writing shrinks the reservation to the n bytes of JSON that are left of an answer.
func (x *exchange) writing(n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := int64(n); n < x.held {
		_ = x.answer.Resize(n) // shrinking cannot fail
		x.held = n
	}
}

// wrote releases the reservation of a written answer.
func (x *exchange) wrote() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.held > 0 {
		x.answer.Release()
		x.held = 0
	}
}

// asks reserves memory for a request message of the given bytes and objects. It does not wait.
func (x *exchange) asks(bytes, objects int) error {
	n := byteCost*int64(bytes) + objectCost*int64(objects)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.finished {
		return io.ErrUnexpectedEOF
	}
	return x.request.Resize(n)
}

// keep keeps a list or a watch message in its wire form until it is written. While the client does not read, it
// costs no more than for gRPC clients, which may share it. only is as with hold.
func (x *exchange) keep(ctx context.Context, f *form, m mem.BufferSlice, only bool) error {
	n := int64(m.Len())
	if err := x.hold(ctx, n+min(answerCost*n, translatorBytes), only); err != nil {
		m.Free()
		return err
	}
	x.kept.Free()
	x.kept, x.form = m, f
	return nil
}

// body is the body of a request. It bounds the size, nesting and reading time of each message.
type body struct {
	io.ReadCloser
	x     *exchange
	limit int
	due   func(time.Time) // sets the deadline of reading
	// Of the current message.
	bytes, objects int
	begun          bool
	nesting        nesting // of all messages
}

// messageTimeout bounds the time from the first to the last byte of a request message.
const messageTimeout = 30 * time.Second

// next resets the bounds after a message has been read.
func (b *body) next() {
	b.bytes, b.objects, b.begun = 0, 0, false
	b.due(time.Time{}) // the next message may come at any time, or never
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.limit-b.bytes+1)])
	for _, c := range p[:n] {
		b.nesting.add(c)
		switch c {
		case '{':
			b.objects++
		case ' ', '\t', '\r', '\n':
			continue
		}
		if !b.begun {
			b.begun = true
			b.due(time.Now().Add(messageTimeout))
		}
	}
	b.bytes += n
	if err != nil {
		b.due(time.Time{}) // net/http reads on, to notice when the client leaves
	}
	switch {
	case b.bytes > b.limit:
		return 0, &kv.InvalidError{Field: "request", Reason: fmt.Sprintf("more than %d bytes of JSON", b.limit)}
	case b.objects > maxObjects:
		return 0, &kv.InvalidError{Field: "request", Reason: fmt.Sprintf("more than %d objects", maxObjects)}
	case b.nesting.deepest > maxDepth:
		return 0, &kv.InvalidError{Field: "request", Reason: fmt.Sprintf("objects and lists nested more than %d deep", maxDepth)}
	}
	if full := b.x.asks(b.bytes, b.objects); full != nil {
		return 0, full
	}
	return n, err
}

// nesting measures the depth of nested JSON objects and lists, byte by byte. It does not validate the JSON.
type nesting struct {
	depth, deepest  int
	quoted, escaped bool // within a string; after a backslash in it
}

func (d *nesting) add(c byte) {
	switch {
	case d.escaped:
		d.escaped = false
	case c == '"':
		d.quoted = !d.quoted
	case d.quoted:
		d.escaped = c == '\\'
	case c == '{', c == '[':
		d.depth++
		d.deepest = max(d.deepest, d.depth)
	case c == '}', c == ']':
		d.depth--
	}
}

// answerWriter writes an answer. The exchange holds memory for the bytes that the client has not read.
type answerWriter struct {
	http.ResponseWriter
	x *exchange
	g *Gateway
}

// Unwrap supports http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements io.Writer. It blocks while the client does not read.
func (w *answerWriter) Write(p []byte) (int, error) {
	defer w.x.wrote()
	if m := w.x.kept; m != nil {
		w.x.kept = nil
		defer m.Free()
		return len(p), w.g.translate(w.ResponseWriter, m, w.x.form)
	}
	w.x.writing(len(p))
	return w.ResponseWriter.Write(p)
}
