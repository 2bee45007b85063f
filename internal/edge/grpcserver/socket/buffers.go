package socket

import "sync"

// buffers are those of outputs and backlogs. A connection has one only while bytes wait.
var buffers = sync.Pool{New: func() any { return &buffer{make([]byte, 0, smallBuffer)} }} //nolint:gochecknoglobals // a pool of the process

// boxes are buffers without bytes: to put bytes into a pool allocates nothing.
var boxes = sync.Pool{New: func() any { return new(buffer) }} //nolint:gochecknoglobals // a pool of the process

type buffer struct{ b []byte }

const (
	// smallBuffer is the capacity that a buffer begins with.
	smallBuffer = 4 << 10
	// largeBuffer is the capacity above which a buffer is not kept.
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

// PutBuffer takes a buffer back, or none. A part that was cut off at the front is lost.
func PutBuffer(b []byte) {
	if cap(b) >= smallBuffer/2 && cap(b) <= largeBuffer {
		box := boxes.Get().(*buffer) //nolint:forcetypeassert // nothing else is in it
		box.b = b
		buffers.Put(box)
	}
}
