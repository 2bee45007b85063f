package grpcserver

import (
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/callhead"
	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/socket"
)

// If the first message of a stream finds no room for its headers, because the client reads nothing, the
// send is announced before it blocks. A pump that kept its place meanwhile would serve no other client.
func TestAFirstMessageAnnouncesThatItWaits(t *testing.T) {
	for name, prepare := range map[string]func(*stream){
		"a call":  func(*stream) {},
		"another": func(s *stream) { s.web = &web{stream: s, header: make(http.Header)} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				here := socket.New(near)
				c := newConn(&Server{cfg: Config{MaxStreams: 10, StreamWindow: 64 << 10}}, here, here, false, &peer.Peer{})
				s := newStream(c, 1, &callhead.Request{Path: "/a/b", Length: -1})
				prepare(s)
				c.mu.Lock()
				c.streams[1] = s
				c.stalled, c.out = true, make(output, maxPending) // as if full of answers to the client's frames
				c.mu.Unlock()

				announced := make(chan struct{})
				sent := make(chan error, 1)
				announce := sync.OnceFunc(func() { close(announced) })
				go func() { sent <- s.SendFramed(announce, []byte("message")) }()
				synctest.Wait()
				select {
				case <-announced:
				case err := <-sent:
					t.Fatalf("the send did not block: %v", err)
				default:
					t.Error("the send blocks without an announcement")
				}
				c.mu.Lock()
				c.leaveLocked(s)
				c.mu.Unlock()
				if err := <-sent; status.Code(err) != codes.Canceled {
					t.Errorf("the stream ended with %v", err)
				}
			})
		})
	}
}
