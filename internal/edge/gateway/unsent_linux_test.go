package gateway

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
)

// The kernel buffers little for an HTTP/1 client that does not read, so its watch waits as a position. By
// default, Linux buffers more than 2 MiB on loopback.
func TestTheKernelHoldsLittleForClientsThatDoNotRead(t *testing.T) {
	g, err := New(Config{MaxRequest: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := io.WriteString(client, "GET /health HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	raw, err := g.Listener(l).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	shook := make(chan struct{})
	go func() {
		defer close(shook)
		_, _, _ = g.Credentials(nil, nil).ServerHandshake(raw) // from here on, the gateway owns the connection
	}()
	if _, err := g.arrive.Accept(); err != nil {
		t.Fatal(err)
	}
	<-shook
	socket, err := raw.(*sniffed).Conn.(*net.TCPConn).SyscallConn() //nolint:forcetypeassert // net.Listen made it
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	if err := socket.Write(func(fd uintptr) bool {
		for {
			n, err := syscall.Write(int(fd), make([]byte, 4<<10))
			if err != nil {
				if !errors.Is(err, syscall.EAGAIN) {
					t.Error(err)
				}
				return true
			}
			taken += n
		}
	}); err != nil {
		t.Fatal(err)
	}
	if taken > 1<<20 {
		t.Errorf("the kernel buffers %d bytes", taken)
	}
	t.Logf("the kernel buffers %d bytes", taken)
}
