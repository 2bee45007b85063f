package rawconn_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
)

// connected returns both ends of a connection, the dialled end first.
func connected(t *testing.T) (dialled, accepted net.Conn) {
	t.Helper()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := rawconn.Listener(inner)
	defer l.Close()
	if dialled, err = rawconn.Dial(t.Context(), l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dialled.Close()
		accepted.Close()
	})
	return dialled, accepted
}

// A write that is larger than the kernel's buffer continues when the peer has read.
func TestALargeWriteArrivesWhole(t *testing.T) {
	a, b := connected(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	failed := make(chan error, 1)
	go func() {
		n, err := a.Write(sent)
		if err == nil && n != len(sent) {
			err = io.ErrShortWrite
		}
		failed <- errors.Join(err, a.Close())
	}()
	got, err := io.ReadAll(iotest.HalfReader(b))
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("read %d of %d bytes: %v", len(got), len(sent), err)
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

// The errors are those of connections of package net, because callers compare with them.
func TestErrorsAreThoseOfNet(t *testing.T) {
	a, b := connected(t)
	if err := b.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read after the deadline: %d, %v", n, err)
	}
	if err := b.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Write(nil); n != 0 || err != nil {
		t.Errorf("a write of no bytes: %d, %v", n, err)
	}
	if n, err := b.Read(nil); n != 0 || err != nil {
		t.Errorf("a read of no bytes: %d, %v", n, err)
	}
	a.Close()
	if n, err := b.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a read after the peer has closed: %d, %v", n, err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a read of a closed connection: %v", err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write to a closed connection: %v", err)
	}
	for range 1 << 20 { // the first writes may precede the peer's reset
		if _, err := b.Write([]byte("x")); err != nil {
			var where *net.OpError
			if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &where) || where.Op != "write" {
				t.Errorf("a write after the peer has closed: %v", err)
			}
			return
		}
	}
	t.Error("writes succeed after the peer has closed")
}

// Closing a connection ends a blocked read and a blocked write.
func TestCloseEndsWaiters(t *testing.T) {
	a, _ := connected(t)
	ended := make(chan error, 2)
	go func() {
		_, err := a.Read(make([]byte, 1))
		ended <- err
	}()
	go func() {
		for {
			if _, err := a.Write(make([]byte, 1<<20)); err != nil {
				ended <- err
				return
			}
		}
	}()
	a.Close()
	for range 2 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
}

// Layers above find the socket of a connection as in connections of package net.
func TestTheSocketIsFound(t *testing.T) {
	a, _ := connected(t)
	if _, ok := a.(syscall.Conn); !ok {
		t.Errorf("%T has no SyscallConn", a)
	}
	p, q := net.Pipe()
	defer p.Close()
	defer q.Close()
	if got := rawconn.Wrap(p); got != p {
		t.Errorf("a connection without a socket was wrapped as %T", got)
	}
}

func BenchmarkPingPong(b *testing.B) {
	inner, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer inner.Close()
	for name, wrap := range map[string]func(net.Conn) net.Conn{"conn=net": func(c net.Conn) net.Conn { return c }, "conn=raw": rawconn.Wrap} {
		b.Run(name, func(b *testing.B) {
			x, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", inner.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			y, err := inner.Accept()
			if err != nil {
				b.Fatal(err)
			}
			x, y = wrap(x), wrap(y)
			defer x.Close()
			go func() { // ends when x is closed
				defer y.Close()
				_, _ = io.Copy(struct{ io.Writer }{y}, struct{ io.Reader }{y})
			}()
			p := make([]byte, 256)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.Write(p); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(x, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
