package grpcserver

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/socket"
)

// A header list that the reader has read before the connection ended opens no stream: its
// handler would wait for ever, and Stop for it.
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
