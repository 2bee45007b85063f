package pump_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// held is a stream whose sends block, and announce that they do.
type held struct {
	announcer
	release chan struct{}
}

// SendMsg implements pump.Messages.
func (h *held) SendMsg(any) error {
	h.wait()
	<-h.release
	return nil
}

// Pumps with turns visit a connection during a turn of its client. The turn ends with the visit, or
// before a send blocks.
func TestVisitsWaitForTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		turn := make(chan struct{}, 1)
		pumps := pump.Pumps{Turn: func(client string) (leave func()) {
			<-turn
			order = append(order, "turn of "+client)
			return func() { order = append(order, "end") }
		}}
		h := &held{release: make(chan struct{})}
		s := pumps.Open(grpc.NewContextWithServerTransportStream(t.Context(), h), "a", h)
		var task pump.Task
		sends := false
		task.Init(s, func(*pump.Scratch) bool {
			if order = append(order, "visit"); sends {
				_ = s.Send(new(wire.Encoded))
				order = append(order, "sent")
			}
			return false
		})
		task.Start()
		synctest.Wait()
		if len(order) > 0 {
			t.Fatalf("the pump has done %q before it had a turn", order)
		}
		turn <- struct{}{}
		synctest.Wait()
		sends = true
		task.Wake()
		turn <- struct{}{}
		synctest.Wait()
		close(h.release)
		synctest.Wait()
		if want := []string{"turn of a", "visit", "end", "turn of a", "visit", "end", "sent"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
		s.Close()
		pumps.Wait()
	})
}

// A task that has more to do, and is woken in the meantime, runs once for both.
func TestATaskThatHasMoreToDoAndIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pumps pump.Pumps
		s := open(&pumps, new(connection), nil)
		var order []string
		var first, other pump.Task
		other.Init(s.Stream, func(*pump.Scratch) bool {
			order = append(order, "other")
			return false
		})
		first.Init(s.Stream, func(*pump.Scratch) bool {
			if order = append(order, "first"); len(order) > 2 {
				return false
			}
			first.Wake()
			other.Wake()
			return true
		})
		other.Start()
		synctest.Wait()
		first.Start()
		synctest.Wait()
		if want := []string{"other", "first", "first", "other"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
		s.Close()
		pumps.Wait()
	})
}

// A task that reads much without sending ends the turn of its stream, before the stream's other tasks.
func TestReadEventsEndATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pumps pump.Pumps
		c := &connection{}
		one, two := pumps.OpenAt("a", &transport{c: c}), pumps.OpenAt("a", &transport{c: c})
		var order []string
		var starts, first, second, other pump.Task
		add := func(task *pump.Task, s *pump.Stream, name string, reads int) {
			task.Init(s, func(own *pump.Scratch) bool {
				order = append(order, name)
				own.Read(reads)
				return false
			})
		}
		add(&first, one, "first", 5000)
		add(&second, one, "second", 0)
		add(&other, two, "other", 0)
		starts.Init(one, func(*pump.Scratch) bool {
			first.Start()
			second.Start()
			other.Start()
			return false
		})
		starts.Start()
		synctest.Wait()
		if want := []string{"first", "other", "second"}; !slices.Equal(order, want) {
			t.Errorf("got %q, want %q", order, want)
		}
		one.Close()
		two.Close()
		pumps.Wait()
	})
}
