package rawconn_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
)

// Each of these events ends the rest of a connection, exactly once: new bytes, bytes that arrived
// before, the peer's end of stream, Close, and a deadline.
func TestRest(t *testing.T) {
	for name, does := range map[string]struct {
		before, then func(peer io.WriteCloser, c *rawconn.Conn)
	}{
		"bytes":           {then: func(peer io.WriteCloser, _ *rawconn.Conn) { _, _ = peer.Write([]byte("x")) }},
		"earlier bytes":   {before: func(peer io.WriteCloser, _ *rawconn.Conn) { _, _ = peer.Write([]byte("x")) }},
		"the peer's end":  {then: func(peer io.WriteCloser, _ *rawconn.Conn) { _ = peer.Close() }},
		"Close":           {then: func(_ io.WriteCloser, c *rawconn.Conn) { _ = c.Close() }},
		"a deadline":      {then: func(_ io.WriteCloser, c *rawconn.Conn) { _ = c.SetReadDeadline(time.Unix(1, 0)) }},
		"a deadline both": {then: func(_ io.WriteCloser, c *rawconn.Conn) { _ = c.SetDeadline(time.Unix(1, 0)) }},
	} {
		t.Run(name, func(t *testing.T) {
			peer, accepted := connected(t)
			c := accepted.(*rawconn.Conn)
			var r rawconn.Rester
			defer r.Close()
			if does.before != nil {
				does.before(peer, c)
			}
			ready := make(chan struct{}, 2)
			if err := r.Rest(c, func() { ready <- struct{}{} }); err != nil {
				t.Fatal(err)
			}
			if does.then != nil {
				if len(ready) > 0 {
					t.Fatal("the rest ended before the event")
				}
				does.then(peer, c)
			}
			select {
			case <-ready:
			case <-time.After(10 * time.Second):
				t.Fatal("the rest did not end")
			}
			_ = c.Close()
			if len(ready) > 0 {
				t.Error("ready was called twice")
			}
		})
	}
}

// A connection can rest again after each of its reads.
func TestRestAgain(t *testing.T) {
	peer, accepted := connected(t)
	c := accepted.(*rawconn.Conn)
	var r rawconn.Rester
	defer r.Close()
	ready := make(chan struct{}, 1)
	for range 10 {
		nothing(t, c)
		if err := r.Rest(c, func() { ready <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		<-ready
		c.Hasty = true
		if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
}

// nothing checks that a read before the next rest finds no bytes.
func nothing(t *testing.T, c *rawconn.Conn) {
	t.Helper()
	c.Hasty = true
	if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, rawconn.ErrNothing) {
		t.Fatalf("%d bytes, %v", n, err)
	}
}

// If a read leaves room in its buffer, the next read before a rest does not ask the kernel. Bytes that
// arrive in between still end the rest, and are read then.
func TestBytesBetweenTheReadAndTheRest(t *testing.T) {
	peer, accepted := connected(t)
	c := accepted.(*rawconn.Conn)
	var r rawconn.Rester
	defer r.Close()
	ready := make(chan struct{}, 1)
	for range 100 {
		if _, err := peer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		c.Hasty = false
		if n, err := c.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if _, err := peer.Write([]byte("y")); err != nil {
			t.Fatal(err)
		}
		nothing(t, c)
		if err := r.Rest(c, func() { ready <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		<-ready
		if n, err := c.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
}

// A closed connection does not rest, and neither does any connection after its Rester is closed.
func TestNoRestAfterClose(t *testing.T) {
	_, a := connected(t)
	_, b := connected(t)
	var r rawconn.Rester
	_ = a.Close()
	wrong := func() { t.Error("ready was called although Rest returned an error") }
	if err := r.Rest(a.(*rawconn.Conn), wrong); err == nil {
		t.Error("a closed connection can rest")
	}
	r.Close()
	if err := r.Rest(b.(*rawconn.Conn), wrong); err == nil {
		t.Error("a connection can rest after its Rester was closed")
	}
	_ = b.Close()
}
