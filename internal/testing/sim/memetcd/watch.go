package memetcd

import (
	"errors"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// watchServer is etcd's Watch service.
type watchServer struct {
	pb.UnimplementedWatchServer
	*Server
}

// Watch serves one stream. One goroutine owns the watches; another one only
// receives requests.
func (s *watchServer) Watch(grpcStream pb.Watch_WatchServer) error {
	ctx := grpcStream.Context()
	requests, broken := make(chan *pb.WatchRequest), make(chan error, 1)
	go func() {
		for {
			r, err := grpcStream.Recv()
			if errors.Is(err, io.EOF) {
				return // the client has no more requests; its watches continue
			}
			if err != nil {
				broken <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()

	st := newStream(s.Server)
	defer st.close()
	interval := time.NewTicker(s.config.ProgressInterval)
	defer interval.Stop()
	for {
		out, changed, next := st.deliver(time.Now())
		for _, resp := range out {
			if err := s.gate(ctx); err != nil {
				return rpctypes.ErrGRPCWatchCanceled
			}
			if err := grpcStream.Send(resp); err != nil {
				return err
			}
		}
		if len(out) > 0 {
			continue
		}
		due, stop := after(next)
		select {
		case r := <-requests:
			// etcd's receiver reads while its disk hangs, but its responses wait, so the model may
			// wait here.
			if err := s.gate(ctx); err != nil {
				stop()
				return rpctypes.ErrGRPCWatchCanceled
			}
			st.handle(r)
		case <-changed:
		case <-due:
		case <-interval.C:
			st.tick()
		case err := <-broken:
			stop()
			return err
		case <-ctx.Done():
			stop()
			return rpctypes.ErrGRPCWatchCanceled
		}
		stop()
	}
}

// after returns a channel that fires at t; never, when t is zero.
func after(t time.Time) (<-chan time.Time, func()) {
	if t.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(t))
	return timer.C, func() { timer.Stop() }
}
