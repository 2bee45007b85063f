package main

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
)

// cursor reads a message in the buffers that gRPC received, and copies only the requested fields.
type cursor struct {
	rest  mem.BufferSlice
	b     []byte // the rest of the current buffer
	left  int    // bytes left in all
	sized bool   // the current field of fields is not a number
	first error  // the first error; all later reads return zeros
}

var errShort = errors.New("the message ends too early")

func newCursor(m mem.BufferSlice) *cursor { return &cursor{rest: m, left: m.Len()} }

// fill makes b non-empty, or fails.
func (c *cursor) fill() bool {
	for len(c.b) == 0 {
		if len(c.rest) == 0 {
			c.fail(errShort)
			return false
		}
		c.b, c.rest = c.rest[0].ReadOnlyData(), c.rest[1:]
	}
	return true
}

func (c *cursor) fail(err error) {
	if c.first == nil {
		c.first = err
	}
	c.left = 0
}

func (c *cursor) varint() uint64 {
	var v uint64
	for shift := uint(0); shift < 64; shift += 7 {
		if c.left < 1 || !c.fill() {
			c.fail(errShort)
			return 0
		}
		b := c.b[0]
		c.b, c.left = c.b[1:], c.left-1
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	c.fail(errors.New("a number is too long"))
	return 0
}

func (c *cursor) skip(n int) {
	if n < 0 || n > c.left {
		c.fail(errShort)
		return
	}
	for n > 0 && c.fill() {
		k := min(n, len(c.b))
		c.b, c.left, n = c.b[k:], c.left-k, n-k
	}
}

// bytes appends the next n bytes to dst.
func (c *cursor) bytes(dst []byte, n int) []byte {
	if n < 0 || n > c.left {
		c.fail(errShort)
		return dst
	}
	for n > 0 && c.fill() {
		k := min(n, len(c.b))
		dst = append(dst, c.b[:k]...)
		c.b, c.left, n = c.b[k:], c.left-k, n-k
	}
	return dst
}

// fields calls f for each field of the next n bytes, with the value of a number and the length of
// any other field. f reads all of the latter, or nothing: then it is skipped.
func (c *cursor) fields(n int, f func(number int, v uint64)) {
	if n > c.left {
		c.fail(errShort)
	}
	end := c.left - n
	for c.left > end && c.first == nil {
		tag := c.varint()
		c.sized = tag&7 == 2
		switch tag & 7 {
		case 0:
			f(int(tag>>3), c.varint())
		case 2:
			size := c.varint()
			if size > uint64(c.left) {
				c.fail(errShort)
				return
			}
			after := c.left - int(size)
			f(int(tag>>3), size)
			if c.left > after {
				c.skip(c.left - after)
			}
		default:
			c.fail(fmt.Errorf("field %d has wire type %d", tag>>3, tag&7))
		}
	}
}

// The numbers of fields, from etcd's rpc.proto and kv.proto, and from cache.proto where they
// differ.
const (
	headerRevision = 3

	rangeHeader = 1
	rangeKvs    = 2
	rangeMore   = 3
	rangeCount  = 4

	watchID       = 2
	watchCreated  = 3
	watchCanceled = 4
	watchReason   = 6
	watchEvents   = 11

	listRevision = 1
	listCount    = 4
	listKvs      = 11

	nativeWatchID  = 1
	nativeWatchIDs = 2
	nativeCreated  = 5
	nativeSync     = 7
	nativeEnded    = 8
	endedMessage   = 2

	eventKv = 2

	kvKey         = 1
	kvModRevision = 3
)

// ranged has the decoded fields of an answer to Range.
type ranged struct {
	revision int64
	keys     int
	more     bool
	count    int64
	last     []byte // the last key
	bytes    int
}

func (r *ranged) scan(m mem.BufferSlice) error {
	c := newCursor(m)
	last := r.last[:0]
	*r = ranged{bytes: m.Len()}
	c.fields(c.left, func(number int, v uint64) {
		switch number {
		case rangeHeader:
			c.fields(int(v), func(number int, v uint64) {
				if number == headerRevision {
					r.revision = int64(v)
				}
			})
		case rangeKvs:
			r.keys++
			// The key comes first; the rest is skipped.
			if end := c.left - int(v); c.varint() == kvKey<<3|2 {
				if n := c.varint(); n <= uint64(c.left-end) {
					last = c.bytes(last[:0], int(n))
				}
			}
		case rangeMore:
			r.more = v != 0
		case rangeCount:
			r.count = int64(v)
		}
	})
	r.last = last
	return c.first
}

// listed has the decoded fields of a chunk of a list of the native API.
type listed struct {
	revision, count int64
	keys            int
}

func (l *listed) scan(m mem.BufferSlice) error {
	c := newCursor(m)
	*l = listed{}
	c.fields(c.left, func(number int, v uint64) {
		switch number {
		case listRevision:
			l.revision = int64(v)
		case listCount:
			l.count = int64(v)
		case listKvs:
			l.keys++
		}
	})
	return c.first
}

// watched has the decoded fields of an answer to Watch.
type watched struct {
	native            bool    // by the native API: set before scan
	ids               []int64 // the watches of the response
	created, canceled bool
	reason            string
	revisions         []int64 // of the events
}

func (w *watched) scan(m mem.BufferSlice) error {
	c := newCursor(m)
	*w = watched{native: w.native, ids: w.ids[:0], revisions: w.revisions[:0]}
	if w.native {
		c.fields(c.left, func(number int, v uint64) { w.nativeField(c, number, v) })
	} else {
		w.ids = append(w.ids, 0) // servers do not send the ID 0
		c.fields(c.left, func(number int, v uint64) { w.etcdField(c, number, v) })
	}
	return c.first
}

func (w *watched) etcdField(c *cursor, number int, v uint64) {
	switch number {
	case watchID:
		w.ids[0] = int64(v)
	case watchCreated:
		w.created = v != 0
	case watchCanceled:
		w.canceled = v != 0
	case watchReason:
		w.reason = string(c.bytes(nil, int(v)))
	case watchEvents:
		w.event(c, v)
	}
}

func (w *watched) nativeField(c *cursor, number int, v uint64) {
	switch number {
	case nativeWatchID:
		w.ids = append(w.ids, int64(v))
	case nativeWatchIDs:
		if !c.sized { // not packed
			w.ids = append(w.ids, int64(v))
			return
		}
		for end := c.left - int(v); c.left > end && c.first == nil; {
			w.ids = append(w.ids, int64(c.varint()))
		}
	case nativeCreated:
		w.created = true
	case nativeSync:
		w.canceled, w.reason = true, "it was sent a unit instead of events"
	case nativeEnded:
		w.canceled = true
		c.fields(int(v), func(number int, v uint64) {
			if number == endedMessage {
				w.reason = string(c.bytes(nil, int(v)))
			}
		})
	case watchEvents:
		w.event(c, v)
	}
}

// event reads the mod revision of an event.
func (w *watched) event(c *cursor, size uint64) {
	c.fields(int(size), func(number int, v uint64) {
		if number != eventKv {
			return
		}
		c.fields(int(v), func(number int, v uint64) {
			if number == kvModRevision {
				w.revisions = append(w.revisions, int64(v))
			}
		})
	})
}
