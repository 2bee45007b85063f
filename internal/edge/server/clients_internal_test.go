package server

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/fair"
)

// The bytes of requests that calls have not read count against the budget, and against the part of their client.
func TestUnreadRequestsAreBounded(t *testing.T) {
	b := budget.New(16 << 20) // 2 MiB of it for requests, and 1 MiB for each client
	s := &Server{cfg: Config{Budget: b}}
	greedy, other := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 1}
	if !s.holdUnread(greedy, 1<<20) {
		t.Error("a client does not get its part")
	}
	again := &net.TCPAddr{IP: greedy.IP, Port: 2}
	if s.holdUnread(again, 1) {
		t.Error("a client gets more than its part, on another connection")
	}
	if !s.holdUnread(other, 1<<20) || b.Held(budget.Requests) != 2<<20 {
		t.Errorf("another client does not get its part; %d bytes are held", b.Held(budget.Requests))
	}
	s.holdUnread(greedy, -1<<20)
	s.holdUnread(other, -1<<20)
	if held := b.Held(budget.Requests); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

// Large work of clients takes turns by address, regardless of the number of connections of each client.
func TestClientsTakeTurnsToCompute(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one turn at a time
	synctest.Test(t, func(t *testing.T) {
		s := &Server{cfg: Config{Turns: fair.NewTurns()}}
		leave, err := s.turn(t.Context(), &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1})
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		var all sync.WaitGroup
		for port, ip := range []byte{1, 1, 2} {
			all.Go(func() {
				leave, err := s.turn(t.Context(), &net.TCPAddr{IP: net.IPv4(10, 0, 0, ip), Port: port})
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, fmt.Sprint(ip, " ", port))
				leave()
			})
			synctest.Wait()
		}
		leave()
		all.Wait()
		if want := []string{"1 0", "2 2", "1 1"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	})
}
