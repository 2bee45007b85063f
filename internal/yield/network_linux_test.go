package yield_test

import (
	"net"
	"runtime"
	"testing"

	"github.com/shardwatch/shardwatch/internal/yield"
)

// A goroutine whose connection has bytes runs while Network yields. With Now it would run only after the
// scheduler's next poll.
func TestNetworkLetsAConnectionBeRead(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	here, there := pair(t)
	got := make(chan byte, 1)
	go func() {
		var b [1]byte
		for {
			if _, err := here.Read(b[:]); err != nil {
				return
			}
			got <- b[0]
		}
	}()
	for i := range byte(100) {
		yield.Network() // the reader waits
		if _, err := there.Write([]byte{i}); err != nil {
			t.Fatal(err)
		}
		yield.Network()
		yield.Network() // as Now in TestNowLetsAReadyGoroutineRun
		select {
		case b := <-got:
			if b != i {
				t.Fatalf("byte %d is %d", i, b)
			}
		default:
			t.Fatalf("byte %d has not been read", i)
		}
	}
}

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if there, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Close() })
	if here, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = here.Close() })
	return here, there
}
