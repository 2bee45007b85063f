package rawconn_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
)

// Each reason to read ends the rest of a connection, once: bytes that arrive, bytes that were there, the
// peer's end, Close and a deadline.
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
					t.Fatal("it ends before")
				}
				does.then(peer, c)
			}
			select {
			case <-ready:
			case <-time.After(10 * time.Second):
				t.Fatal("it does not end")
			}
			_ = c.Close()
			if len(ready) > 0 {
				t.Error("it ends twice")
			}
		})
	}
}

// A connection rests again after each of its reads.
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

// nothing checks that a read of a connection that rests next finds nothing.
func nothing(t *testing.T, c *rawconn.Conn) {
	t.Helper()
	c.Hasty = true
	if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, rawconn.ErrNothing) {
		t.Fatalf("%d bytes, %v", n, err)
	}
}

// Bytes that arrive after a read that has left room in its buffer end the rest that follows it, and are read
// then, although the read before the rest has not looked.
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

// A connection that is closed, or whose Rester is, does not rest.
func TestNoRestAfterClose(t *testing.T) {
	_, a := connected(t)
	_, b := connected(t)
	var r rawconn.Rester
	_ = a.Close()
	wrong := func() { t.Error("ready is called after an error") }
	if err := r.Rest(a.(*rawconn.Conn), wrong); err == nil {
		t.Error("a closed connection rests")
	}
	r.Close()
	if err := r.Rest(b.(*rawconn.Conn), wrong); err == nil {
		t.Error("a connection rests with a closed Rester")
	}
	_ = b.Close()
}
