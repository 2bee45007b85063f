package pump_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// announcer is the transport of a stream that announces when it waits.
type announcer struct{ wait func() }

func (*announcer) Method() string               { return "" }
func (*announcer) SetHeader(metadata.MD) error  { return nil }
func (*announcer) SendHeader(metadata.MD) error { return nil }
func (*announcer) SetTrailer(metadata.MD) error { return nil }
func (a *announcer) Announce(wait func())       { a.wait = wait }

// SendMsg implements pump.Messages.
func (*announcer) SendMsg(any) error { return nil }

// A stream that announces when it waits has a function to call during its turns, but not afterwards.
func TestStreamsAnnounceThatTheyWait(t *testing.T) {
	var pumps pump.Pumps
	a := new(announcer)
	s := pumps.Open(grpc.NewContextWithServerTransportStream(t.Context(), a), "a", a)
	told := make(chan bool, 1)
	var task pump.Task
	task.Init(s, func(*pump.Scratch) bool {
		_ = s.Send(new(wire.Encoded))
		told <- a.wait != nil
		return false
	})
	task.Start()
	if !<-told {
		t.Error("a stream cannot say that it waits")
	}
	s.Close()
	if a.wait != nil {
		t.Error("a stream that has ended tells a pump that it waits")
	}
	pumps.Wait()
}
