package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A client that does not read an answer, or reads next to nothing of it, is cut. One that
// reads slowly has all of it.
func TestClientsThatDoNotReadAreCut(t *testing.T) {
	for name, c := range map[string]struct {
		read   int           // bytes at a time
		pause  time.Duration // before each
		served bool
	}{
		"nothing":       {0, time.Hour, false},
		"next to none":  {piece, pieceTimeout - time.Second, false},
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
				n, err := (&web{Conn: server}).Write(answer)
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
