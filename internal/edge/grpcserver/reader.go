package grpcserver

import (
	"bufio"
	"errors"
	"io"
	"sync"

	"golang.org/x/net/http2"
)

// reader parses frames. A connection has one only while a frame arrives.
type reader struct {
	conn   *conn
	head   []byte // bytes read earlier, to parse first
	buf    *bufio.Reader
	framer *http2.Framer
	left   int // bytes that the current frame may still have, with its CONTINUATION frames
}

const (
	// readBuffer is the size of a reader's buffer, in bytes. The remainder of larger frames
	// bypasses it.
	readBuffer = 4 << 10
	// frameHeader is the size of a frame's header.
	frameHeader = 9
	// maxFrame is the largest payload of a frame, in both directions: HTTP/2's minimum.
	maxFrame = 16 << 10
)

// errFlood ends connections whose frames cost much CPU but have little content.
var errFlood = errors.New("too many frames without content")

var readers = sync.Pool{New: func() any { //nolint:gochecknoglobals // a pool of the process
	r := new(reader)
	r.buf = bufio.NewReaderSize((*arriving)(r), readBuffer)
	r.framer = http2.NewFramer(io.Discard, (*framed)(r))
	r.framer.SetMaxReadFrameSize(maxFrame)
	r.framer.SetReuseFrames()
	return r
}}

// startReader returns a reader for the frames after head on the connection.
func startReader(c *conn, head []byte, maxHeader int) *reader {
	r := readers.Get().(*reader) //nolint:forcetypeassert // nothing else is in it
	r.conn, r.head = c, head
	r.framer.ReadMetaHeaders = c.decode
	r.framer.MaxHeaderListSize = uint32(maxHeader) //nolint:gosec // validated
	return r
}

// stop releases the reader. Do not call it after an error: the reader may be in the middle of a
// frame.
func (r *reader) stop() {
	r.conn, r.head, r.framer.ReadMetaHeaders = nil, nil, nil
	readers.Put(r)
}

// buffered reports whether another frame has begun to arrive.
func (r *reader) buffered() bool { return len(r.head) > 0 || r.buf.Buffered() > 0 }

// next returns the next frame, with its complete header block.
func (r *reader) next() (http2.Frame, error) {
	r.left = frameHeader + maxFrame + 4*int(r.framer.MaxHeaderListSize)
	h, err := r.framer.ReadFrameHeader()
	if err != nil {
		return nil, err
	}
	f, err := r.framer.ReadFrameForHeader(h)
	var s http2.StreamError
	if h.Type == http2.FrameHeaders && errors.As(err, &s) && s.Cause == nil {
		// A header block was not decoded: our HPACK table differs from the client's.
		return nil, http2.ConnectionError(s.Code)
	}
	return f, err
}

// arriving is the reader as the source of buf.
type arriving reader

// Read implements io.Reader.
func (r *arriving) Read(p []byte) (int, error) {
	if len(r.head) > 0 {
		n := copy(p, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	r.conn.burst.Pause()
	return r.conn.net.Read(p)
}

// framed is the reader as the source of framer. It bounds the CONTINUATION frames of a header
// block, which the framer does not.
type framed reader

// Read implements io.Reader.
func (r *framed) Read(p []byte) (int, error) {
	n, err := r.buf.Read(p)
	if r.left -= n; r.left < 0 {
		return n, errFlood
	}
	return n, err
}
