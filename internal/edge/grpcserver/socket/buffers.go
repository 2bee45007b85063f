package socket

import "sync"

// buffers are for outputs and backlogs. A connection has a buffer only while it has unwritten bytes.
var buffers = sync.Pool{New: func() any { return &buffer{make([]byte, 0, smallBuffer)} }} //nolint:gochecknoglobals // a pool of the process

// boxes are empty buffer structs: with them, putting bytes into the pool allocates nothing.
var boxes = sync.Pool{New: func() any { return new(buffer) }} //nolint:gochecknoglobals // a pool of the process

type buffer struct{ b []byte }

const (
	// smallBuffer is the initial capacity of a buffer.
	smallBuffer = 4 << 10
	// largeBuffer is the capacity above which a buffer is not reused.
	largeBuffer = 2 * MaxWrite
)

// GetBuffer returns an empty buffer.
func GetBuffer() []byte {
	box := buffers.Get().(*buffer) //nolint:forcetypeassert // nothing else is in it
	b := box.b[:0]
	box.b = nil
	boxes.Put(box)
	return b
}

// PutBuffer returns a buffer, which may be nil, for reuse. Capacity cut off at its front is lost.
func PutBuffer(b []byte) {
	if cap(b) >= smallBuffer/2 && cap(b) <= largeBuffer {
		box := boxes.Get().(*buffer) //nolint:forcetypeassert // nothing else is in it
		box.b = b
		buffers.Put(box)
	}
}
