package grpcserver

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/callhead"
)

// headerTable is the size of HPACK's table for what clients send, in bytes: HTTP/2's default.
// Our encoder has no table: connections then share it, and clients keep none for us.
const headerTable = 4 << 10

// block is a header block that is being encoded.
type block struct {
	buf     bytes.Buffer
	encoder *hpack.Encoder
	size    uint32 // of the header list, as RFC 9113, 6.5.2 counts
}

var blocks = sync.Pool{New: func() any { //nolint:gochecknoglobals // a pool of the process
	b := new(block)
	b.encoder = hpack.NewEncoder(&b.buf)
	b.encoder.SetMaxDynamicTableSize(0)
	b.field(":status", "200") // the first block says that the table has no room
	return b
}}

// noTable is what says that the table has no room: RFC 7541, 6.3.
const noTable = 0x20

// startBlock returns an empty block for a connection. The caller holds its mu.
func startBlock(c *conn) *block {
	b := blocks.Get().(*block) //nolint:forcetypeassert // nothing else is in it
	b.buf.Reset()
	b.size = 0
	if !c.sized {
		c.sized = true
		b.buf.WriteByte(noTable)
	}
	return b
}

func (b *block) field(name, value string) {
	f := hpack.HeaderField{Name: name, Value: value}
	b.size += f.Size()
	_ = b.encoder.WriteField(f) // to a bytes.Buffer
}

// begin adds what every answer begins with.
func (b *block) begin(httpStatus int, subtype string) {
	b.field(":status", strconv.Itoa(httpStatus))
	b.field("content-type", callhead.ContentType(subtype))
}

// metadata adds what a handler has set.
func (b *block) metadata(md metadata.MD) {
	for name, values := range md {
		if callhead.Reserved(name) {
			continue
		}
		for _, v := range values {
			if strings.HasSuffix(name, "-bin") {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			b.field(name, v)
		}
	}
}

// detailsHeader carries a status with details.
const detailsHeader = "grpc-status-details-bin"

// status adds the outcome of a call.
func (b *block) status(s *status.Status) {
	b.field("grpc-status", strconv.Itoa(int(s.Code())))
	b.field("grpc-message", callhead.Escape(s.Message()))
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		if details, err := proto.Marshal(p); err == nil {
			b.field(detailsHeader, base64.RawStdEncoding.EncodeToString(details))
		}
	}
}

// appendBlockLocked appends a header block in as many frames as it needs, and gives it
// back. It reports false, and appends nothing, when the client does not take so much.
func (c *conn) appendBlockLocked(b *block, id uint32, flags http2.Flags) bool {
	defer blocks.Put(b)
	if b.size > c.headers {
		c.sized = false // the block that would have said it
		return false
	}
	kind, rest := http2.FrameHeaders, b.buf.Bytes()
	for {
		part := rest[:min(len(rest), maxFrame)]
		if rest = rest[len(part):]; len(rest) == 0 {
			flags |= http2.FlagHeadersEndHeaders // CONTINUATION's is the same bit
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
