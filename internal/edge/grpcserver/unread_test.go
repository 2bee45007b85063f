package grpcserver_test

import (
	"context"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// Config.Unread is called once for each single answer that waits for its client, and its result is released when the
// answer is sent. An answer that it refuses ends the call: with a status, or with a reset if a part is sent.
func TestUnreadAnswers(t *testing.T) {
	called, released := make(chan int, 10), make(chan int, 10)
	var refused atomic.Bool
	cfg := config()
	cfg.Unread = func(_ context.Context, answer any, n int) (func(), error) {
		if _, ok := answer.(*pb.SimpleResponse); !ok {
			t.Errorf("called with a %T", answer)
		}
		called <- n
		if refused.Load() {
			return nil, status.Error(codes.ResourceExhausted, "full")
		}
		return func() { released <- n }, nil
	}
	address, _ := serve(t, cfg)
	r := greet(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	get := func(id uint32, n int32) {
		r.open(id, false, call(unaryMethod)...)
		r.must(r.WriteData(id, true, message(&pb.SimpleRequest{ResponseSize: n})))
	}
	get(1, 1000)
	size := <-called
	if size < 1000 || len(released) > 0 {
		t.Errorf("called with %d bytes, released: %d", size, len(released))
	}
	r.must(r.WriteWindowUpdate(1, 10))
	r.data(1, 10)
	r.alive()
	r.must(r.WriteWindowUpdate(1, 10_000))
	if h, rest, _ := r.answer(1); h["grpc-status"] != "0" || len(rest) != size+5-10 {
		t.Errorf("%v, %d bytes", h, len(rest))
	}
	if n := <-released; n != size || len(called) > 0 {
		t.Errorf("released %d bytes of %d, called again: %d", n, size, len(called))
	}
	get(3, 1000)
	<-called
	r.must(r.WriteRSTStream(3, http2.ErrCodeCancel))
	<-released

	refused.Store(true)
	get(5, 1000)
	if h, rest, _ := r.answer(5); h["grpc-status"] != "8" || h["grpc-message"] != "full" || len(rest) > 0 {
		t.Errorf("%v, %d bytes", h, len(rest))
	}
	r.must(r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
	get(7, 1000)
	if _, rest, code := r.answer(7); code != http2.ErrCodeEnhanceYourCalm || len(rest) != 10 {
		t.Errorf("%v after %d bytes", code, len(rest))
	}
	r.must(r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10_000}))
	get(9, 1000)
	if h, _, _ := r.answer(9); h["grpc-status"] != "0" {
		t.Errorf("an answer that does not wait: %v", h)
	}
}
