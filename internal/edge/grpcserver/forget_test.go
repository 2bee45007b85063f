package grpcserver_test

import (
	"net"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
)

// forgetting is a connection that records which streams it is told to forget.
type forgetting struct {
	net.Conn
	forgot chan uint32
}

func (c forgetting) NetConn() net.Conn { return c.Conn }

func (c forgetting) Forget(stream uint32) { c.forgot <- stream }

type forgettingCredentials struct {
	credentials.TransportCredentials
	forgot chan uint32
}

func (c forgettingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	return forgetting{conn, c.forgot}, info, err
}

// The server tells the connection of each stream that it resets, open or not, because the client
// sends no more on that stream. It reports no other stream.
func TestResetStreamsAreForgotten(t *testing.T) {
	forgot := make(chan uint32, 100)
	cfg := config()
	cfg.Credentials = forgettingCredentials{cfg.Credentials, forgot}
	address, _ := serve(t, cfg)
	r := greet(t, address)
	r.ended() // stream 1 ends normally
	r.open(3, false, call(duplexMethod)...)
	r.must(r.WriteWindowUpdate(3, 0))
	r.expectReset(3, http2.ErrCodeProtocol)
	r.open(5, false, call(unaryMethod)...) // ends before its request is complete
	r.must(r.WriteData(5, false, []byte{9, 0, 0, 1, 0}))
	r.expectReset(5, http2.ErrCodeNo)
	r.open(7, false, ":method", "POST", ":scheme", "http", ":path", unaryMethod, ":authority", "x", "content-type", "text/plain") // is refused
	r.expectReset(7, http2.ErrCodeNo)
	r.must(r.WriteData(7, false, []byte{0})) // sent before the reset arrived
	r.expectReset(7, http2.ErrCodeStreamClosed)
	r.open(9, false, call(duplexMethod)...)
	r.must(r.WriteRSTStream(9, http2.ErrCodeCancel))
	r.alive()
	got := make([]uint32, len(forgot))
	for i := range got {
		got[i] = <-forgot
	}
	if want := []uint32{3, 5, 7, 7}; !slices.Equal(got, want) {
		t.Errorf("streams %d are forgotten, want %d", got, want)
	}
}
