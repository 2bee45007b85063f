package grpcserver

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/socket"
)

// A header list that was read before its connection ended opens no stream: the handler would never
// return, and Stop would wait for it.
func TestNoStreamsOnAConnectionThatHasEnded(t *testing.T) {
	srv := &Server{cfg: Config{MaxStreams: 10, StreamWindow: 64 << 10}}
	near, far := net.Pipe()
	defer far.Close()
	here := socket.New(near)
	c := newConn(srv, here, here, false, &peer.Peer{})
	c.fail(errStopped)
	headers := &http2.MetaHeadersFrame{HeadersFrame: &http2.HeadersFrame{FrameHeader: http2.FrameHeader{StreamID: 1}}}
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/a/b"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		headers.Fields = append(headers.Fields, hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	if s, err := c.open(headers); s != nil || !errors.Is(err, errStopped) || len(c.streams) > 0 {
		t.Errorf("opened %v on a connection that has ended, error %v", s, err)
	}
}

// deadlines counts the read deadlines that are set.
type deadlines struct {
	net.Conn
	n int
}

// SetReadDeadline implements net.Conn.
func (d *deadlines) SetReadDeadline(time.Time) error {
	d.n++
	return nil
}

// A connection ends gracefully only once: a later flush, for example of a pump, does not shorten the time
// that its client has to read the last answer.
func TestAFlushAfterTheEndCutsNothing(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	at := &deadlines{Conn: near}
	here := socket.New(at)
	c := newConn(&Server{}, here, here, false, &peer.Peer{})
	c.bye.over = true
	for range 2 {
		c.flush()
		if !errors.Is(c.err, errIdle) || at.n != 1 {
			t.Errorf("the end: %v; %d read deadlines were set", c.err, at.n)
		}
	}
}
