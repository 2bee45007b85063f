package intake

import "encoding/binary"

// prefaceLength is the size of HTTP/2's connection preface, in bytes.
const prefaceLength = 24

// The parts of HTTP/2 that mark the beginning and end of requests (RFC 9113, 4.1 and 6).
const (
	frameHeader = 9

	typeData, typeHeaders, typeReset = 0x0, 0x1, 0x3

	flagEndStream, flagPadded = 0x1, 0x8
)

// messageHeader is the size of the header of a gRPC message: the compression flag and
// the length.
const messageHeader = 5

// frameCost is gRPC's approximate overhead of each DATA frame, in bytes.
const frameCost = 64

// frames parses the frames of a client on one connection. It is owned by the goroutine that reads
// the connection.
type frames struct {
	skip int // bytes that need no parsing

	head  [frameHeader]byte
	headN int

	kind, flags byte
	stream      uint32
	size        int // of the frame's payload
	left        int // of the payload, without padding
	padding     int
	padded      bool // the next byte is the length of the padding

	open    map[uint32]*request // incomplete requests, by stream
	touched []uint32            // streams whose requests have begun or grown since the last call of news
	free    *request            // for reuse
}

// request is a message that a client has not sent completely, or a call whose first
// message has not begun.
type request struct {
	frames int // DATA frames of the message
	bytes  int // payload of these frames, with padding

	head  [messageHeader]byte
	headN int
	left  int // missing bytes of the message, once its header has arrived

	touched bool
	listed  bool   // it is or was in a list of the Intake
	stream  uint32 // constant while the request is in a list

	entry // guarded by Intake.mu
}

// cost is the memory that gRPC holds for the request, in bytes.
func (r *request) cost() int64 { return int64(r.bytes + r.frames*frameCost) }

func newFrames() *frames { return &frames{skip: prefaceLength, open: make(map[uint32]*request)} }

// feed parses the next bytes. It calls done for each request that is complete or abandoned.
func (f *frames) feed(p []byte, done func(*request)) {
	for len(p) > 0 {
		switch {
		case f.skip > 0:
			n := min(f.skip, len(p))
			f.skip -= n
			p = p[n:]
		case f.headN < frameHeader:
			n := copy(f.head[f.headN:], p)
			f.headN += n
			if p = p[n:]; f.headN == frameHeader {
				f.begin(done)
			}
		case f.padded:
			f.padded = false
			f.padding = min(int(p[0]), f.left) // more padding is an error: gRPC closes the connection
			f.left -= f.padding
			p = p[1:]
			f.data(nil, done)
		default:
			n := min(f.left, len(p))
			f.left -= n
			f.data(p[:n], done)
			p = p[n:]
		}
	}
}

// begin handles the header of a frame.
func (f *frames) begin(done func(*request)) {
	f.size = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
	f.kind, f.flags = f.head[3], f.head[4]
	f.stream = binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31)
	f.left, f.padding = f.size, 0
	if f.kind != typeData {
		f.headN, f.skip = 0, f.size
		switch {
		case f.kind == typeReset, f.kind == typeHeaders && f.flags&flagEndStream != 0:
			f.end(f.stream, done)
		case f.kind == typeHeaders && f.open[f.stream] == nil:
			f.touch(f.request())
		}
		return
	}
	if f.padded = f.flags&flagPadded != 0 && f.size > 0; f.padded {
		f.left--
	}
	if f.left > 0 {
		r := f.open[f.stream]
		if r == nil {
			r = f.request()
		}
		r.frames++
		r.bytes += f.size
		f.touch(r)
		return
	}
	if !f.padded {
		f.data(nil, done)
	}
}

// data handles data of the frame, and ends the frame after its last byte.
func (f *frames) data(p []byte, done func(*request)) {
	r := f.open[f.stream]
	for len(p) > 0 && r != nil {
		if r.headN < messageHeader {
			n := copy(r.head[r.headN:], p)
			r.headN += n
			if p = p[n:]; r.headN < messageHeader {
				break
			}
			r.left = int(binary.BigEndian.Uint32(r.head[1:]))
		}
		n := min(r.left, len(p))
		r.left -= n
		p = p[n:]
		if r.left > 0 {
			break
		}
		f.end(f.stream, done)
		if r = nil; len(p) > 0 || f.left > 0 { // the next message begins in this frame
			r = f.request()
			r.frames, r.bytes = 1, len(p)+f.left
			f.touch(r)
		}
	}
	if f.left > 0 || f.padded {
		return
	}
	f.headN, f.skip = 0, f.padding
	if f.flags&flagEndStream != 0 {
		f.end(f.stream, done)
	}
}

// end removes the request of a stream.
func (f *frames) end(stream uint32, done func(*request)) {
	r := f.open[stream]
	if r == nil {
		return
	}
	delete(f.open, stream)
	done(r)
	*r = request{}
	f.free = r
}

// request returns a new request for the stream of the frame.
func (f *frames) request() *request {
	r := f.free
	if f.free = nil; r == nil {
		r = new(request)
	}
	r.stream = f.stream
	f.open[f.stream] = r
	return r
}

// touch notes that a request of the frame's stream has begun or grown.
func (f *frames) touch(r *request) {
	if !r.touched {
		r.touched = true
		f.touched = append(f.touched, f.stream)
	}
}

// news calls fn with the requests that have begun or grown since the last call.
func (f *frames) news(fn func(*request)) {
	for _, stream := range f.touched {
		if r := f.open[stream]; r != nil && r.touched {
			r.touched = false
			fn(r)
		}
	}
	f.touched = f.touched[:0]
}
