package grpcserver_test

import (
	"io"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
)

// parking is a grpc.ServerTransportStream that can park its handler.
type parking interface {
	Park(next func() error) error
	StopReceiving()
}

// parker implements FullDuplexCall with a function.
type parker struct {
	pb.UnimplementedTestServiceServer
	serve func(parking, grpc.ServerStream) error
}

func (p *parker) FullDuplexCall(gs grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	return p.serve(grpc.ServerTransportStreamFromContext(gs.Context()).(parking), gs)
}

// parked starts a server, and one call that serve handles.
func parked(t *testing.T, serve func(parking, grpc.ServerStream) error) *raw {
	t.Helper()
	s, err := grpcserver.New(config())
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterTestServiceServer(s, &parker{serve: serve})
	r := greet(t, listen(t, s))
	r.open(1, false, call(duplexMethod)...)
	return r
}

// StopReceiving ends RecvMsg, even in the middle of a message; the handler then chooses the outcome.
func TestStopReceiving(t *testing.T) {
	for name, part := range map[string][]byte{"nothing": nil, "a part of a head": {0, 0}, "a part of a message": {0, 0, 0, 0, 9, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan parking)
			r := parked(t, func(p parking, gs grpc.ServerStream) error {
				begun <- p
				if err := gs.RecvMsg(new(pb.StreamingOutputCallRequest)); err == nil || p.Park(nil) != nil {
					t.Errorf("RecvMsg: %v", err)
				}
				return gs.SendMsg(&pb.StreamingOutputCallResponse{Payload: payload(3)})
			})
			p := <-begun
			if part != nil {
				r.must(r.WriteData(1, false, part))
				r.alive() // so the part has arrived
			}
			p.StopReceiving()
			if headers, content, _ := r.answer(1); headers["grpc-status"] != "0" || len(content) == 0 {
				t.Errorf("answer: %v, %d bytes", headers, len(content))
			}
		})
	}
}

// A parked handler is resumed exactly once for each message, for the end of the client's side, and
// for the end of the stream, the connection or the server.
func TestParkedHandlerIsResumed(t *testing.T) {
	resumed := make(chan error, 1)
	r := parked(t, func(p parking, gs grpc.ServerStream) error {
		var next func() error
		next = func() error {
			for {
				if err := p.Park(next); err != nil {
					return err
				}
				err := gs.RecvMsg(new(pb.StreamingOutputCallRequest))
				resumed <- err
				if err != nil && err != io.EOF { //nolint:errorlint // as RecvMsg says
					return err
				}
			}
		}
		return next()
	})
	whole := message(&pb.StreamingOutputCallRequest{})
	for range 3 {
		r.must(r.WriteData(1, false, whole))
		if err := <-resumed; err != nil {
			t.Fatal(err)
		}
	}
	r.must(r.WriteData(1, false, append(whole, whole...)))
	for range 2 {
		if err := <-resumed; err != nil {
			t.Fatal(err)
		}
	}
	r.must(r.WriteData(1, true, nil))
	if err := <-resumed; err != io.EOF { //nolint:errorlint // as RecvMsg says
		t.Fatalf("the end of the client's side: %v", err)
	}
	r.alive()
	_ = r.conn.Close()
	if err := <-resumed; err == nil || err == io.EOF { //nolint:errorlint // as RecvMsg says
		t.Fatalf("the end of the connection: %v", err)
	}
}
