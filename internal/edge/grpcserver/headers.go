package grpcserver

import (
	"sync"

	"golang.org/x/net/http2"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/callhead"
)

// headerTable is the size of the HPACK table for the headers of clients, in bytes: HTTP/2's default.
// Our encoder has no table, so that connections can share it and clients need no table for us.
const headerTable = 4 << 10

var blocks = sync.Pool{New: func() any { return callhead.NewBlock() }} //nolint:gochecknoglobals // a pool of the process

// startBlock returns an empty block for a connection. The caller holds its mu.
func startBlock(c *conn) *callhead.Block {
	b := blocks.Get().(*callhead.Block) //nolint:forcetypeassert // nothing else is in it
	b.Reset(!c.sized)
	c.sized = true
	return b
}

// appendBlockLocked appends a header block in as many frames as it needs, and releases the
// block. It appends nothing and returns false if the block is larger than the client accepts.
func (c *conn) appendBlockLocked(b *callhead.Block, id uint32, flags http2.Flags) bool {
	defer blocks.Put(b)
	if b.Size() > c.headers {
		c.sized = false // the dropped block may have been the first one
		return false
	}
	kind, rest := http2.FrameHeaders, b.Bytes()
	for {
		part := rest[:min(len(rest), maxFrame)]
		if rest = rest[len(part):]; len(rest) == 0 {
			flags |= http2.FlagHeadersEndHeaders // CONTINUATION uses the same bit
		}
		c.out.frame(kind, flags, id, part...)
		if len(rest) == 0 {
			break
		}
		kind, flags = http2.FrameContinuation, 0
	}
	c.keep.sent()
	return true
}
