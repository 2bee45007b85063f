package differential

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// recorder is one watch stream and all its responses.
type recorder struct {
	signal
	stream pb.Watch_WatchClient
	stop   context.CancelFunc
	told   []*pb.WatchResponse // guarded by mu
	// sent is the number of requests sent before each element of told arrived: progress covers
	// earlier requests.
	sent  []int // guarded by mu
	count int   // guarded by mu; requests sent
	err   error // guarded by mu; how it ended
	ended chan struct{}
}

// record opens a watch stream. It ends with ctx or by close.
func record(ctx context.Context, cc grpc.ClientConnInterface) (*recorder, error) {
	ctx, stop := context.WithCancel(ctx)
	s, err := pb.NewWatchClient(cc).Watch(ctx)
	if err != nil {
		stop()
		return nil, fmt.Errorf("open a watch stream: %w", err)
	}
	r := &recorder{stream: s, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		for {
			resp, err := s.Recv()
			r.mu.Lock()
			if err != nil {
				r.err = err
			} else {
				r.told, r.sent = append(r.told, resp), append(r.sent, r.count)
			}
			r.ringLocked()
			r.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return r, nil
}

func (r *recorder) send(req *pb.WatchRequest) error {
	r.mu.Lock()
	r.count++
	r.mu.Unlock()
	return r.stream.Send(req)
}

// close ends the stream.
func (r *recorder) close() {
	r.stop()
	<-r.ended
}

// from returns the responses from a position on, with the number of requests sent before each, and
// the end of the stream. next is closed by the next change.
func (r *recorder) from(at int) (told []*pb.WatchResponse, sent []int, next <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[at:], r.sent[at:], r.nextLocked(), r.err
}
