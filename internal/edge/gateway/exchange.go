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

// The cost of a message to a node beside its wire form, in bytes for each of its own: its
// fields in memory, and its JSON, which grows as it is written. A list of small keys
// takes seven times its wire form.
const answerCost = 8

// The cost of a request, in bytes for each byte of JSON and for each object in it: an
// empty one, {}, takes three bytes in a list and becomes a message of some hundred.
const (
	byteCost   = 6
	objectCost = 512
)

// maxObjects bounds the objects of a message of a request. etcd takes 128 operations in
// a transaction unless it is configured otherwise.
const maxObjects = 16 << 10

// maxDepth bounds how deeply objects and lists of a request are nested: 199 transactions, of three
// each. The decoder is recursive: 3,300 transactions, the deepest that encoding/json accepts, take
// 11 to 15 ms and a stack of 8 MiB, which grows by copying it.
const maxDepth = 600

// A request, and an answer of at most so many bytes in all, waits for memory for a while.
// A larger answer does not: it is there already.
const (
	patience = 2 * time.Second
	little   = 64 << 10
)

// exchange is a request and its answer. It holds a part of the node's memory for
// clients until both are done.
type exchange struct {
	memory *budget.Budget
	holder budget.Client // of what the exchange holds
	method *method       // the one that may be called
	pace   *pace         // of the connection that only this exchange writes to; nil: there is none, or its writes wait

	streams sync.WaitGroup // handlers that run

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

// in returns ctx as that of the exchange.
func (x *exchange) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// end gives everything back. The handlers must be about to return.
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

// endTurn ends the turn in which a message of a watch is written, if there is one. The HTTP handler
// calls it.
func (x *exchange) endTurn() {
	if x.pace != nil {
		x.pace.end()
	}
}

// hold reserves n bytes for an answer in place of the bytes reserved for the one
// before. The only one waits for them for a while, or not; one of a stream until ctx ends. It reserves at most
// half of the client's part, so that an answer of any size can be had: the requests of open watches hold some of the part
// as long as these are open.
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
	if x.finished { // the client has gone
		r.Release()
		return context.Canceled
	}
	x.answer, x.held = r, n
	return nil
}

// writing says that of an answer only n bytes of JSON are left.
func (x *exchange) writing(n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := int64(n); n < x.held {
		_ = x.answer.Resize(n) // it does not grow
		x.held = n
	}
}

// wrote says that the answer has been written.
func (x *exchange) wrote() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.held > 0 {
		x.answer.Release()
		x.held = 0
	}
}

// asks reserves memory for a message of the request: so many bytes with so many
// objects. It does not wait.
func (x *exchange) asks(bytes, objects int) error {
	n := byteCost*int64(bytes) + objectCost*int64(objects)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.finished {
		return io.ErrUnexpectedEOF
	}
	return x.request.Resize(n)
}

// keep keeps a list, or a message of a watch, in its wire form until it is written:
// one that its client does not read costs as much as those of other clients, which may share
// it. only is as with hold.
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

// body is the body of a request. It bounds each message in it.
type body struct {
	io.ReadCloser
	x     *exchange
	limit int
	due   func(time.Time) // sets the deadline of reading
	// Of the message that is being read.
	bytes, objects int
	begun          bool
	nesting        nesting // of all messages
}

// messageTimeout bounds the time from the first byte of a message of a request to its
// last.
const messageTimeout = 30 * time.Second

// next says that a message has been read.
func (b *body) next() {
	b.bytes, b.objects, b.begun = 0, 0, false
	b.due(time.Time{}) // another one may come at any time, or none
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
		b.due(time.Time{}) // net/http reads on, to see whether the client goes
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

// nesting measures how deeply objects and lists of JSON are nested, byte by byte. It does not
// validate the JSON.
type nesting struct {
	depth, deepest  int
	quoted, escaped bool // within a string, after a backslash in it
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

// answerWriter writes an answer. It holds memory of the exchange for the
// bytes that its client has not read.
type answerWriter struct {
	http.ResponseWriter
	x *exchange
	g *Gateway
}

// Unwrap is for http.ResponseController.
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
