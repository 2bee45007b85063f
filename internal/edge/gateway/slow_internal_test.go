package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is the connection that an answer is written to, like an HTTP/2 stream.
type pipe struct{ net.Conn }

func (pipe) Header() http.Header { return nil }

func (pipe) WriteHeader(int) {}

// A client that does not read an answer, or reads it far too slowly, is disconnected. A moderately slow
// client receives the whole answer.
func TestClientsThatDoNotReadAreCut(t *testing.T) {
	for version, writer := range map[string]func(net.Conn) io.Writer{
		"HTTP/1": func(c net.Conn) io.Writer { return &web{Conn: c} },
		"HTTP/2": func(c net.Conn) io.Writer { return &pacedWriter{ResponseWriter: pipe{c}} },
	} {
		t.Run(version, func(t *testing.T) { testSlowClients(t, writer) })
	}
}

func testSlowClients(t *testing.T, writer func(net.Conn) io.Writer) {
	for name, c := range map[string]struct {
		read   int           // bytes at a time
		pause  time.Duration // before each
		served bool
	}{
		"nothing":       {0, time.Hour, false},
		"very slowly":   {piece, pieceTimeout - time.Second, false},
		"slowly":        {2 * leastRate, time.Second, true},
		"after a while": {1 << 20, pieceTimeout - time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				answer := bytes.Repeat([]byte("x"), 1<<20)
				got := make(chan int)
				go func() {
					all := 0
					for all < len(answer) {
						time.Sleep(c.pause)
						n, err := io.ReadFull(client, make([]byte, c.read))
						all += n
						if err != nil || c.read == 0 {
							break
						}
					}
					got <- all
				}()
				n, err := writer(server).Write(answer)
				_ = server.Close()
				if c.served && (n != len(answer) || err != nil) || !c.served && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%d bytes: %v", n, err)
				}
				if read := <-got; c.served && read != len(answer) {
					t.Errorf("read %d bytes", read)
				}
			})
		})
	}
}
