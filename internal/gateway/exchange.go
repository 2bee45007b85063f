package gateway

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// What a message costs a node beside its wire form, in bytes for each of its own: its
// fields in memory, and its JSON, which grows as it is written. A list of small keys
// takes seven times its wire form.
const answerCost = 8

// What a request costs, in bytes for each byte of JSON and for each object in it: an
// empty one, {}, takes three bytes in a list and becomes a message of some hundred.
const (
	byteCost   = 6
	objectCost = 512
)

// maxObjects bounds the objects of a message of a request. etcd takes 128 operations in
// a transaction unless it is told otherwise.
const maxObjects = 16 << 10

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
	method *method       // the one that may be called; nil: any, with the node's own requests

	streams sync.WaitGroup // handlers that run

	mu       sync.Mutex
	request  *budget.Reservation // guarded by mu
	answer   *budget.Reservation // guarded by mu
	held     int64               // guarded by mu; bytes of answer
	list     mem.BufferSlice     // of the answer to a Range, until it is written; owned by the HTTP handler
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
	x.streams.Wait()
	x.list.Free()
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

// hold reserves n bytes for an answer in place of what was reserved for the one
// before. The only one waits for them for a while, or not; one of a stream until ctx ends.
func (x *exchange) hold(ctx context.Context, n int64, only bool) error {
	x.wrote()
	if only {
		var cancel context.CancelFunc
		waits := patience
		if n > little {
			waits = 0
		}
		ctx, cancel = context.WithTimeout(ctx, waits)
		defer cancel()
	}
	r, err := x.memory.Reserve(ctx, x.holder, budget.JSON, n)
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

// keep keeps the answer to a Range in its wire form, until it is written: a list that
// its client does not read costs what the lists of other clients do, who may share it.
func (x *exchange) keep(ctx context.Context, list mem.BufferSlice) error {
	if err := x.hold(ctx, int64(list.Len()), true); err != nil {
		list.Free()
		return err
	}
	x.list.Free()
	x.list = list
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
	}
	if full := b.x.asks(b.bytes, b.objects); full != nil {
		return 0, full
	}
	return n, err
}

// answerWriter writes an answer. What it holds of the exchange's memory is what its
// client has not read.
type answerWriter struct {
	http.ResponseWriter
	x       *exchange
	options protojson.MarshalOptions
}

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements io.Writer. It blocks while the client does not read.
func (w *answerWriter) Write(p []byte) (int, error) {
	if list := w.x.list; list != nil {
		w.x.list = nil
		defer list.Free()
		defer w.x.wrote()
		return len(p), writeList(w.ResponseWriter, list, w.options)
	}
	w.x.writing(len(p))
	defer w.x.wrote()
	return w.ResponseWriter.Write(p)
}

// Fields of etcdserverpb.RangeResponse.
const rangeKvs = 2

// writeList writes an encoded etcdserverpb.RangeResponse as JSON, one key at a time.
func writeList(to io.Writer, list mem.BufferSlice, options protojson.MarshalOptions) error {
	w := &listWriter{out: bufio.NewWriterSize(to, 32<<10), options: options}
	in := bufio.NewReaderSize(list.Reader(), 4<<10)
	var field []byte
	size := uint64(list.Len()) //nolint:gosec // a length
	for {
		tag, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			return w.close()
		}
		number, kind := protowire.DecodeTag(tag)
		var value uint64 // of a number, or a length: the message has no other fields
		if err == nil {
			value, err = binary.ReadUvarint(in)
		}
		if err == nil && kind == protowire.BytesType {
			if value > size {
				return io.ErrUnexpectedEOF
			}
			field = slices.Grow(field[:0], int(value))[:value]
			_, err = io.ReadFull(in, field)
		}
		switch {
		case err != nil:
		case number != rangeKvs && !w.note(number):
			err = errTwice
		case kind != protowire.BytesType:
			w.rest = protowire.AppendVarint(protowire.AppendTag(w.rest, number, kind), value)
		case number == rangeKvs:
			err = w.key(field)
		default:
			w.rest = protowire.AppendBytes(protowire.AppendTag(w.rest, number, kind), field)
		}
		if err != nil {
			return fmt.Errorf("write a list: %w", err)
		}
	}
}

// listWriter writes the parts of a list as JSON.
type listWriter struct {
	out     *bufio.Writer
	options protojson.MarshalOptions
	rest    []byte // encoded fields that are not written yet
	json    []byte
	item    mvccpb.KeyValue
	list    bool   // has begun
	before  uint64 // the numbers of fields before the list, as bits
}

// errTwice is for a field before the keys and after them. Its JSON would be there twice;
// neither etcd nor this node encodes a list so.
var errTwice = errors.New("a field comes twice")

// note notes a field that is no key. It reports whether the field has not come before the
// list already.
func (w *listWriter) note(number protowire.Number) bool {
	if number < 0 || number >= 64 {
		return true // it is not known, and is not written
	}
	if !w.list {
		w.before |= 1 << number
		return true
	}
	return w.before&(1<<number) == 0
}

// fields returns the fields in rest as JSON, without braces.
func (w *listWriter) fields() ([]byte, error) {
	var m etcdserverpb.RangeResponse
	if err := proto.Unmarshal(w.rest, &m); err != nil {
		return nil, err
	}
	w.rest = w.rest[:0]
	json, err := w.options.Marshal(&m)
	if err != nil {
		return nil, err
	}
	return json[1 : len(json)-1], nil
}

// key writes an encoded mvccpb.KeyValue.
func (w *listWriter) key(encoded []byte) error {
	w.item.Reset()
	err := proto.Unmarshal(encoded, &w.item)
	if err == nil {
		w.json, err = w.options.MarshalAppend(w.json[:0], &w.item)
	}
	if err != nil {
		return err
	}
	if w.list {
		_ = w.out.WriteByte(',') // the next write fails, too
	} else {
		w.list = true
		before, err := w.fields()
		if err != nil {
			return err
		}
		_ = w.out.WriteByte('{')
		_, _ = w.out.Write(before)
		if len(before) > 0 {
			_ = w.out.WriteByte(',')
		}
		_, _ = w.out.WriteString(`"kvs":[`)
	}
	_, err = w.out.Write(w.json)
	return err
}

// close writes the remaining fields.
func (w *listWriter) close() error {
	after, err := w.fields()
	if err != nil {
		return err
	}
	switch {
	case !w.list:
		_ = w.out.WriteByte('{')
	case len(after) > 0:
		_, _ = w.out.WriteString(`],`)
	default:
		_ = w.out.WriteByte(']')
	}
	_, _ = w.out.Write(after)
	_ = w.out.WriteByte('}')
	return w.out.Flush()
}
