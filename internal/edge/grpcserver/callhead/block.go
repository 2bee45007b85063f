package callhead

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Block is an encoder of one header block, without a dynamic table.
type Block struct {
	buf     bytes.Buffer
	encoder *hpack.Encoder
	size    uint32
}

// NewBlock returns an empty block.
func NewBlock() *Block {
	b := new(Block)
	b.encoder = hpack.NewEncoder(&b.buf)
	b.encoder.SetMaxDynamicTableSize(0)
	b.Field(":status", "200") // this first block sets the table size to 0
	b.Reset(false)
	return b
}

// noTable is the instruction that sets the table's size to 0: RFC 7541, 6.3.
const noTable = 0x20

// Reset empties the block. The first block of a connection sets the table size to 0.
func (b *Block) Reset(first bool) {
	b.buf.Reset()
	b.size = 0
	if first {
		b.buf.WriteByte(noTable)
	}
}

// Size returns the size of the header list, as defined by RFC 9113, 6.5.2.
func (b *Block) Size() uint32 { return b.size }

// Bytes returns the block. It is valid until Reset.
func (b *Block) Bytes() []byte { return b.buf.Bytes() }

// Field adds a header.
func (b *Block) Field(name, value string) {
	f := hpack.HeaderField{Name: name, Value: value}
	b.size += f.Size()
	_ = b.encoder.WriteField(f) // a bytes.Buffer never fails
}

// Begin adds the first headers of every answer.
func (b *Block) Begin(httpStatus int, subtype string) {
	b.Field(":status", strconv.Itoa(httpStatus))
	b.Field("content-type", ContentType(subtype))
}

// Metadata adds the metadata of a handler.
func (b *Block) Metadata(md metadata.MD) {
	for name, values := range md {
		if Reserved(name) {
			continue
		}
		for _, v := range values {
			if strings.HasSuffix(name, "-bin") {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			b.Field(name, v)
		}
	}
}

// DetailsHeader is the header of a status with details.
const DetailsHeader = "grpc-status-details-bin"

// Status adds the outcome of a call.
func (b *Block) Status(s *status.Status) {
	b.Field("grpc-status", strconv.Itoa(int(s.Code())))
	b.Field("grpc-message", Escape(s.Message()))
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		if details, err := proto.Marshal(p); err == nil {
			b.Field(DetailsHeader, base64.RawStdEncoding.EncodeToString(details))
		}
	}
}
