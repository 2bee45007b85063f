package pump_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// announcer is the transport of a stream that announces that a send will block.
type announcer struct{ wait func() }

func (*announcer) Method() string               { return "" }
func (*announcer) SetHeader(metadata.MD) error  { return nil }
func (*announcer) SendHeader(metadata.MD) error { return nil }
func (*announcer) SetTrailer(metadata.MD) error { return nil }
func (a *announcer) Announce(wait func())       { a.wait = wait }

// SendMsg implements pump.Messages.
func (*announcer) SendMsg(any) error { return nil }

// A transport has a function to announce that a send will block during the turns of its stream, but not afterwards.
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
		t.Error("the transport has no announce function during a turn")
	}
	s.Close()
	if a.wait != nil {
		t.Error("the transport still has an announce function after the stream was closed")
	}
	pumps.Wait()
}
