package intake

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/internal/budget"
)

// accepted returns a connection whose bytes are parsed, and the client's end of it.
func accepted(t *testing.T, in *Intake) (here *conn, far net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	c, _, err := in.Credentials(insecure.NewCredentials()).ServerHandshake(near)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*conn), far
}

// arrive delivers p as one read, and returns the error of the read.
func arrive(c *conn, far net.Conn, p []byte) error {
	go func() { _, _ = far.Write(p) }()
	_, err := c.Read(make([]byte, len(p)))
	return err
}

// part returns the frames of the first or a further part of a request.
func part(t *testing.T, stream uint32, first bool, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	framer := http2.NewFramer(&out, nil)
	if first {
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{0x82}, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := framer.WriteData(stream, false, content); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A request whose stream the server has reset holds no bytes, even if more of it arrives. A connection
// remembers a bounded number of such requests.
func TestRequestsOfResetStreamsHoldNothing(t *testing.T) {
	t.Parallel()
	b := budget.New(64 << 20)
	in := New(b, 2<<20, slog.New(slog.DiscardHandler))
	c, far := accepted(t, in)
	defer far.Close()
	begin := []byte(preface)
	for n := range uint32(3 * keptResets) {
		stream := 2*n + 1
		if err := arrive(c, far, append(begin, part(t, stream, true, message(100_000)[:50_000])...)); err != nil {
			t.Fatal(err)
		}
		begin = nil
		if held := b.Held(budget.Requests); held < 100_000 {
			t.Fatalf("stream %d: %d bytes are held", stream, held)
		}
		c.Forget(stream)
		c.Forget(stream)                                                                   // the second call has no effect
		if err := arrive(c, far, part(t, stream, false, make([]byte, 1000))); err != nil { // sent before the reset arrived
			t.Fatal(err)
		}
		if held := b.Held(budget.Requests); held != 0 || in.smalls.Len()+in.larges.Len() > 0 {
			t.Fatalf("stream %d: %d bytes are held by %d requests", stream, held, in.smalls.Len()+in.larges.Len())
		}
	}
	if n := len(c.frames.open); n > keptResets {
		t.Errorf("%d requests are remembered, want at most %d", n, keptResets)
	}
}

// A request that waits for bytes when its stream is reset takes none, and the connection that it would have
// displaced stays open.
func TestAResetRequestWaitsForNoOther(t *testing.T) {
	t.Parallel()
	for _, comes := range []bool{false, true} {
		t.Run(fmt.Sprintf("bytes come %t", comes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := budget.New(8 << 20) // of which 1 MiB is for requests
				in := New(b, 2<<20, slog.New(slog.DiscardHandler))
				one, farOne := accepted(t, in)
				two, farTwo := accepted(t, in)
				most := append([]byte(preface), part(t, 1, true, message(600 << 10)[:10_000])...)
				if err := arrive(one, farOne, most); err != nil {
					t.Fatal(err)
				}
				want := b.Held(budget.Requests)
				read := make(chan error, 1)
				go func() { read <- arrive(two, farTwo, most) }()
				synctest.Wait() // the second request waits for the first
				two.Forget(1)
				if comes {
					_ = one.Close()
					want = 0
				}
				if err := <-read; err != nil {
					t.Errorf("read: %v", err)
				}
				in.mu.Lock()
				defer in.mu.Unlock()
				if held := b.Held(budget.Requests); held != want || one.gone != comes {
					t.Errorf("%d bytes are held, want %d; the first connection is closed: %t", held, want, one.gone)
				}
			})
		})
	}
}
