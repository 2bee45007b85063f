// Package receive receives the requests of a stream whose client rarely sends any: on a
// transport that can park its handler, an idle stream has no goroutine.
package receive

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
)

// Handler is a service's side of a stream. One goroutine at a time calls it.
type Handler[M any] interface {
	// Handle handles a request. It may block; it should return soon once the stream has been
	// stopped. An error ends the stream.
	Handle(m *M) error
	// HalfClosed is called once the client sends no more requests. The stream continues.
	HalfClosed()
	// End is called at the end, with the reason, and returns the outcome of the call.
	End(reason error) error
}

// Requests receives the requests of a stream. Create it with New.
type Requests[M any] struct {
	recv    func() (*M, error)
	from    transport
	handler Handler[M]
	resume  func() error  // run, allocated once
	stopped chan struct{} // closed by Stop

	mu   sync.Mutex
	over bool  // guarded by mu
	err  error // guarded by mu; the reason, once over
}

// transport is a grpc.ServerTransportStream that can park its handler. grpc-go's cannot park;
// see beside.
type transport interface {
	// Park returns nil if a request or the end of the stream is pending. Else it returns an
	// error, which the handler must return at once, and calls next when one is.
	Park(next func() error) error
	// StopReceiving makes RecvMsg fail, and resumes a parked handler.
	StopReceiving()
}

// New returns the Requests of a stream. Call Serve next.
func New[M, R any](gs grpc.BidiStreamingServer[M, R]) *Requests[M] {
	r := &Requests[M]{recv: gs.Recv, stopped: make(chan struct{})}
	r.resume = r.run
	t, ok := grpc.ServerTransportStreamFromContext(gs.Context()).(transport)
	if r.from = t; !ok {
		b := &beside[M]{recv: gs.Recv, ctx: gs.Context(), arrived: make(chan arrival[M]), stopped: r.stopped}
		r.recv, r.from = b.next, b
		go b.run()
	}
	return r
}

// Serve has h handle the requests. The handler of the call must return its error at once: the
// stream may continue without a goroutine, until End has been called.
func (r *Requests[M]) Serve(h Handler[M]) error {
	r.handler = h
	return r.run()
}

// Stop ends the stream; End gets the reason. The first reason wins. Stop does not block.
func (r *Requests[M]) Stop(reason error) {
	r.mu.Lock()
	first := !r.over
	if first {
		r.over, r.err = true, reason
	}
	r.mu.Unlock()
	if first {
		close(r.stopped)
		r.from.StopReceiving()
	}
}

// Stopped is closed once the stream ends.
func (r *Requests[M]) Stopped() <-chan struct{} { return r.stopped }

// run handles the requests that have arrived.
func (r *Requests[M]) run() error {
	for {
		if parked := r.from.Park(r.resume); parked != nil {
			return parked
		}
		m, err := r.recv()
		if err == nil {
			err = r.handler.Handle(m)
		} else if errors.Is(err, io.EOF) {
			r.handler.HalfClosed()
			continue
		}
		if err != nil {
			r.Stop(err)
			r.mu.Lock()
			reason := r.err
			r.mu.Unlock()
			return r.handler.End(reason)
		}
	}
}

// beside receives in a separate goroutine, on a transport whose RecvMsg ends only with the call.
type beside[M any] struct {
	recv    func() (*M, error)
	ctx     context.Context //nolint:containedctx // the stream's
	arrived chan arrival[M]
	stopped <-chan struct{}
}

type arrival[M any] struct {
	m   *M
	err error
}

// run receives until the call ends, when RecvMsg fails.
func (b *beside[M]) run() {
	for {
		m, err := b.recv()
		select {
		case b.arrived <- arrival[M]{m, err}:
		case <-b.stopped:
			return
		}
		if err != nil {
			return
		}
	}
}

// next returns the next request, and io.EOF once. After that it waits for the end of the stream.
func (b *beside[M]) next() (*M, error) {
	select {
	case a := <-b.arrived:
		return a.m, a.err
	case <-b.stopped:
		return nil, context.Canceled // Stop has the reason
	case <-b.ctx.Done():
		return nil, b.ctx.Err()
	}
}

func (b *beside[M]) Park(func() error) error { return nil }

func (b *beside[M]) StopReceiving() {} // next waits for stopped
