package sim_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/testing/sim"
)

// pair returns the ends of a connection from a to b:1, and the listener at b:1.
func pair(t *testing.T, n *sim.Network) (a, b net.Conn, lis net.Listener) {
	t.Helper()
	lis, err := n.Listen("b:1")
	if err != nil {
		t.Fatal(err)
	}
	a, err = n.Dial(t.Context(), "a", "b:1")
	if err != nil {
		t.Fatal(err)
	}
	b, err = lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b, lis
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v; want %q", b, err, want)
	}
}

// silent checks that nothing can be read from c within a minute.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
	_ = c.SetReadDeadline(time.Time{})
}

func fails(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v; want %v", what, err, want)
	}
}

func read(c net.Conn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

func write(c net.Conn) error {
	_, err := c.Write([]byte("x"))
	return err
}

func dialFor(n *sim.Network, d time.Duration, from, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	c, err := n.Dial(ctx, from, addr)
	if err == nil {
		_ = c.Close()
	}
	return err
}

func TestNetwork(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *sim.Network){
		"carries bytes both ways, then EOF": func(t *testing.T, n *sim.Network) {
			a, b, _ := pair(t, n)
			send(t, a, "ping")
			expect(t, b, "ping")
			send(t, b, "pong")
			_ = b.Close()
			_ = b.Close() // a second Close is allowed
			expect(t, a, "pong")
			fails(t, "read", read(a), io.EOF)
			fails(t, "write to a closed peer", write(a), syscall.EPIPE)
			fails(t, "read of a closed end", read(b), net.ErrClosed)
			if a.RemoteAddr().String() != "b:1" || b.LocalAddr().String() != "b:1" || b.RemoteAddr().String() != a.LocalAddr().String() {
				t.Fatal("addresses:", a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr())
			}
		},
		"a write waits for room": func(t *testing.T, n *sim.Network) {
			a, b, _ := pair(t, n)
			big := strings.Repeat("x", 1<<20)
			_ = a.SetWriteDeadline(time.Now().Add(time.Second))
			k, err := io.WriteString(a, big)
			fails(t, "write without a reader", err, os.ErrDeadlineExceeded)
			_ = a.SetWriteDeadline(time.Time{})
			go io.WriteString(a, big[k:])
			expect(t, b, big)
		},
		"a deadline set during a read ends it": func(t *testing.T, n *sim.Network) {
			a, _, _ := pair(t, n)
			done := make(chan error)
			go func() { done <- read(a) }()
			synctest.Wait()
			_ = a.SetDeadline(time.Now())
			fails(t, "read", <-done, os.ErrDeadlineExceeded)
		},
		"close ends the reader of the same end": func(t *testing.T, n *sim.Network) {
			a, _, lis := pair(t, n)
			done := make(chan error)
			go func() { done <- read(a) }()
			synctest.Wait()
			_ = a.Close()
			fails(t, "read", <-done, net.ErrClosed)
			go func() { _, err := lis.Accept(); done <- err }()
			synctest.Wait()
			_ = lis.Close()
			fails(t, "accept", <-done, net.ErrClosed)
			fails(t, "dial", dialFor(n, time.Hour, "a", "b:1"), syscall.ECONNREFUSED)
		},
		"a port has one listener": func(t *testing.T, n *sim.Network) {
			_, _, lis := pair(t, n)
			_, err := n.Listen("b:1")
			fails(t, "listen", err, syscall.EADDRINUSE)
			_ = lis.Close()
			if _, err = n.Listen("b:1"); err != nil {
				t.Fatal(err)
			}
		},
		"latency": func(t *testing.T, n *sim.Network) {
			n.SetLatency(time.Second)
			start := time.Now()
			a, b, _ := pair(t, n) // one round trip
			send(t, a, "x")
			expect(t, b, "x")
			if d := time.Since(start); d != 3*time.Second {
				t.Fatalf("took %v; want 3s", d)
			}
		},
		"a cut link is silent, and loses nothing": func(t *testing.T, n *sim.Network) {
			a, b, _ := pair(t, n)
			n.Cut("a", "b")
			send(t, a, "late")
			send(t, b, "too")
			silent(t, a)
			silent(t, b)
			fails(t, "dial", dialFor(n, time.Hour, "a", "b:1"), context.DeadlineExceeded)
			if err := dialFor(n, time.Hour, "c", "b:1"); err != nil {
				t.Fatal("another host:", err)
			}
			_ = a.Close()
			silent(t, b)
			n.Heal("a", "b")
			expect(t, b, "late")
			fails(t, "read", read(b), io.EOF)
		},
		"a dial goes through when the link is healed": func(t *testing.T, n *sim.Network) {
			pair(t, n)
			n.Cut("a", "b")
			time.AfterFunc(time.Minute, n.HealAll)
			start := time.Now()
			if err := dialFor(n, time.Hour, "a", "b:1"); err != nil || time.Since(start) != time.Minute {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
		},
		"one way": func(t *testing.T, n *sim.Network) {
			a, b, _ := pair(t, n)
			n.CutOneWay("a", "b")
			send(t, b, "down")
			expect(t, a, "down")
			send(t, a, "up")
			silent(t, b)
			fails(t, "dial", dialFor(n, time.Hour, "a", "b:1"), context.DeadlineExceeded)
		},
		"broken connections end, new ones can be made": func(t *testing.T, n *sim.Network) {
			a, b, _ := pair(t, n)
			n.Break("b", "a")
			fails(t, "read", read(a), syscall.ECONNRESET)
			fails(t, "write", write(b), syscall.ECONNRESET)
			if err := dialFor(n, time.Hour, "a", "b:1"); err != nil {
				t.Fatal(err)
			}
		},
		"a killed host": func(t *testing.T, n *sim.Network) {
			a, b, lis := pair(t, n)
			n.Kill("b")
			fails(t, "read", read(a), syscall.ECONNRESET)
			fails(t, "its own read", read(b), syscall.ECONNRESET)
			_, err := lis.Accept()
			fails(t, "its accept", err, net.ErrClosed)
			fails(t, "dial to it", dialFor(n, time.Hour, "a", "b:1"), syscall.ECONNREFUSED)
			fails(t, "dial from it", dialFor(n, time.Hour, "b", "a:1"), syscall.ENETDOWN)
			_, err = n.Listen("b:1")
			fails(t, "listen", err, syscall.ENETDOWN)
			n.Revive("b")
			pair(t, n)
		},
		"a host killed after its link was cut is found dead when the link is healed": func(t *testing.T, n *sim.Network) {
			a, b, _ := pair(t, n)
			n.Cut("a", "b")
			n.Kill("b")
			fails(t, "its own read", read(b), syscall.ECONNRESET)
			silent(t, a)
			n.Heal("a", "b")
			fails(t, "read", read(a), syscall.ECONNRESET)
		},
		"an unaccepted connection dies with its listener": func(t *testing.T, n *sim.Network) {
			_, _, lis := pair(t, n)
			c, err := n.Dial(t.Context(), "a", "b:1")
			if err != nil {
				t.Fatal(err)
			}
			_ = lis.Close()
			fails(t, "read", read(c), syscall.ECONNRESET)
		},
		"a silent host": func(t *testing.T, n *sim.Network) {
			a, b, _ := pair(t, n)
			n.Silence("b")
			send(t, a, "x")
			silent(t, b)
			fails(t, "dial", dialFor(n, time.Hour, "c", "b:1"), context.DeadlineExceeded)
			n.Revive("b")
			expect(t, b, "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, sim.NewNetwork()) })
		})
	}
}
