package gateway

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/socket"
)

// A pump waits until its message is written, but not for a client that does not read.
func TestAPumpWaitsUntilItsMessageIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		x := &exchange{pace: new(pace)}
		st := &stream{
			services: newServices(Config{}), x: x, transport: newTransport("/"), client: ctx, server: ctx,
			toClient: make(chan message), written: make(chan struct{}, 1),
		}
		st.wrote = func() { st.written <- struct{}{} }
		step := make(chan func())
		var both sync.WaitGroup
		both.Go(func() { // the HTTP handler
			for ctx.Err() == nil {
				if st.RecvMsg(new(etcdserverpb.WatchResponse)) == nil {
					(<-step)()
				}
			}
			x.end()
		})
		synctest.Wait() // the handler waits for a message
		st.transport.Announce(func() {})
		var sent atomic.Int64
		both.Go(func() { // the pump
			for ctx.Err() == nil {
				_ = serverStream{st}.SendMsg(new(etcdserverpb.WatchResponse))
				sent.Add(1)
				time.Sleep(time.Millisecond) // the handler waits for the next message
			}
		})
		want := func(n int64, why string) {
			t.Helper()
			time.Sleep(time.Second)
			if got := sent.Load(); got != n {
				t.Errorf("%d messages are sent: %s", got, why)
			}
		}
		want(0, "the first message has not been written")
		step <- func() {}
		want(1, "each message has been written")
		step <- func() {
			x.endTurn()
			want(2, "the client does not read")
			cancel()
		}
		both.Wait()
	})
}

// A turn ends before its message waits for the budget.
func TestATurnEndsBeforeAWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := budget.New(16 << 10)
		all, err := memory.Reserve(t.Context(), budget.Client{}, budget.JSON, 3<<10)
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		x := &exchange{memory: memory, pace: &pace{leave: func() { left++ }}}
		done := make(chan error)
		go func() { done <- x.hold(t.Context(), 1<<10, false) }()
		synctest.Wait()
		if left != 1 {
			t.Errorf("%d turns have ended while a message waits for the budget, want 1", left)
		}
		all.Release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		x.pace.leave = func() { t.Error("the turn ended although no message waits") }
		if err := x.hold(t.Context(), 1<<10, false); err != nil {
			t.Error(err)
		}
		x.pace.leave = nil
		x.end()
	})
}

// An answer may have any size, even beside the requests of open watches.
func TestAnAnswerLargerThanItsPart(t *testing.T) {
	memory := budget.New(16 << 10) // 3 KiB of them for JSON
	client := budget.Client{Name: "a", Max: budget.HalfOfTotal}
	watch, err := memory.Reserve(t.Context(), client, budget.JSON, objectCost)
	if err != nil {
		t.Fatal(err)
	}
	for _, only := range []bool{false, true} {
		x := &exchange{memory: memory, holder: client}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := x.hold(ctx, 1<<20, only); err != nil {
			t.Errorf("only %t: %v", only, err)
		}
		cancel()
		x.writing(100)
		if held := memory.Held(budget.JSON); held != objectCost+100 {
			t.Errorf("only %t: %d bytes are held with 100 bytes left to write", only, held)
		}
		x.end()
	}
	watch.Release()
	if held := memory.Held(budget.JSON); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

// An answer is written in turns, and holds no turn while it waits for its client.
func TestAnswersWaitWithoutATurn(t *testing.T) {
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
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	boundUnsent(server)
	low := socket.New(server)
	low.Own()
	taken, waits := 0, make(chan struct{}, 1)
	c := &web{Conn: low, pace: pace{socket: low, turn: func() (func(), error) {
		taken++
		return func() {
			if taken--; low.Stalled() {
				select {
				case waits <- struct{}{}:
				default:
				}
			}
		}, nil
	}}}
	answer := bytes.Repeat([]byte("x"), 16<<20)
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(answer)
		wrote <- err
	}()
	select {
	case <-waits: // the answer waits without a turn; now the client reads
	case <-time.After(time.Minute):
		t.Fatal("an answer holds its turn while it waits for its client")
	}
	if n, err := io.CopyN(io.Discard, client, int64(len(answer))); err != nil {
		t.Errorf("%d bytes: %v", n, err)
	}
	if err := <-wrote; err != nil || taken != 0 {
		t.Errorf("%d turns have not ended: %v", taken, err)
	}
}
