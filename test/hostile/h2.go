package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// h2 is an HTTP/2 connection on the level of frames. It belongs to one goroutine.
type h2 struct {
	*http2.Framer
	conn net.Conn
	out  bytes.Buffer // frames to send
	head bytes.Buffer
	enc  *hpack.Encoder
	next uint32 // ID of the next stream
}

// hugeWindow is the number of bytes that a server may send without a window update.
const hugeWindow = 1<<31 - 1

// h2 opens a connection with an unlimited window for the server.
func (a *attacker) h2(ctx context.Context) (*h2, error) {
	conn, err := a.tcp(ctx, a.Client, "h2")
	if err != nil {
		return nil, err
	}
	h := &h2{conn: conn, next: 1}
	h.enc = hpack.NewEncoder(&h.head)
	h.Framer = http2.NewFramer(&h.out, conn)
	h.out.WriteString(http2.ClientPreface)
	_ = h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: hugeWindow}) // to a buffer
	_ = h.WriteWindowUpdate(0, hugeWindow-65_535)
	return h, h.send()
}

// send sends the written frames.
func (h *h2) send() error {
	_, err := h.out.WriteTo(h.conn)
	return err
}

// discard reads all bytes until the connection ends.
func (h *h2) discard() { go func() { _, _ = io.Copy(io.Discard, h.conn) }() }

// headers returns the header block of a call, with further pairs of names and values.
func (h *h2) headers(method string, more ...string) []byte {
	h.head.Reset()
	all := append([]string{
		":method", "POST", ":scheme", "http", ":path", method, ":authority", "node",
		"content-type", "application/grpc", "te", "trailers",
	}, more...)
	for i := 0; i < len(all); i += 2 {
		_ = h.enc.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}) // to a buffer
	}
	return bytes.Clone(h.head.Bytes())
}

// open writes the header of a call without messages.
func (h *h2) open(method string) {
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: h.next, BlockFragment: h.headers(method), EndHeaders: true}) // to a buffer
	h.next += 2
}

// call writes a call with one message, and returns its stream. With open the stream stays open for
// more messages.
func (h *h2) call(method string, message []byte, open bool) uint32 {
	id := h.next
	h.next += 2
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.headers(method), EndHeaders: true}) // to a buffer
	_ = h.WriteData(id, !open, framed(message))
	return id
}

// framed returns a message in gRPC's framing: uncompressed, with its length.
func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}
