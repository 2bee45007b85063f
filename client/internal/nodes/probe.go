package nodes

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
)

// probeEvery is how long a stream without signs of life may be quiet before a health check of
// its node.
const probeEvery = 5 * time.Second

// Probe checks the health of a node, over its connection, whenever nothing has arrived from it
// for 5 s. heard is the time of the last message, on the pulse; 0: none yet, which the node must
// send within Config.Silence. It returns true when the node is silent, and false when ctx ends.
func (p *Pool) Probe(ctx context.Context, n *Node, heard *atomic.Int64) (silent bool) {
	pulse, health := p.cfg.Pulse, healthgrpc.NewHealthClient(n.Conn)
	began := pulse.Ran()
	for retry.Sleep(ctx, min(p.cfg.Silence, probeEvery)) {
		at := heard.Load()
		if at == 0 {
			if pulse.Ran()-began > p.cfg.Silence {
				return true
			}
			continue
		}
		if pulse.Ran()-time.Duration(at) < probeEvery {
			continue
		}
		wait := pulse.Wait()
		probe, done := context.WithTimeout(ctx, p.cfg.Silence)
		_, err := health.Check(probe, &healthgrpc.HealthCheckRequest{})
		done()
		switch there, silent := judgeProbe(status.Code(err), pulse.Stalled(wait)); {
		case silent:
			return true
		case there:
			heard.Store(int64(pulse.Ran()))
		}
	}
	return false
}

// judgeProbe interprets a health check: the node is there, it is silent, or neither is
// known. stalled: this process was not running for most of that time.
func judgeProbe(code codes.Code, stalled bool) (there, silent bool) {
	switch code {
	case codes.DeadlineExceeded: // which a process that was stopped finds at any node
		return false, !stalled
	case codes.Unavailable:
		return false, true
	case codes.Unauthenticated: // it may not have been sent
		return false, false
	default:
		return true, false
	}
}

// Probed returns the connection to a node. A stream on it ends with CANCELLED when the node is
// silent; then the node is penalised, and the connection closed.
func (p *Pool) Probed(n *Node) grpc.ClientConnInterface { return &probed{n.Conn, p, n} }

type probed struct {
	*grpc.ClientConn

	pool *Pool
	node *Node
}

// NewStream implements [grpc.ClientConnInterface].
func (c *probed) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	p := c.pool
	ctx, end := context.WithCancel(ctx)
	s := &probedStream{pulse: p.cfg.Pulse, node: c.node}
	s.heard.Store(int64(p.cfg.Pulse.Ran()))
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		end()
		return nil, outcome.ErrClosed
	}
	p.wg.Go(func() {
		if p.Probe(ctx, c.node, &s.heard) {
			s.silent.Store(true)
			p.Penalise(c.node.Addr, 0)
			p.Drop(c.node)
		}
	})
	p.mu.Unlock()
	var err error
	s.ClientStream, err = c.ClientConn.NewStream(ctx, desc, method, append(slices.Clip(opts), grpc.OnFinish(func(error) { end() }))...)
	if err != nil {
		end()
		return nil, s.why(err)
	}
	return s, nil
}

// probedStream is a stream with health checks of its node while nothing arrives.
type probedStream struct {
	grpc.ClientStream

	pulse  *retry.Pulse
	node   *Node
	heard  atomic.Int64 // time of the last message, on the pulse
	silent atomic.Bool  // the node is silent
}

// RecvMsg implements [grpc.ClientStream].
func (s *probedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return s.why(err)
	}
	s.heard.Store(int64(s.pulse.Ran()))
	return nil
}

// why converts the error of gRPC to that of the stream.
func (s *probedStream) why(err error) error {
	if s.silent.Load() {
		return status.Errorf(codes.Canceled, "%s: %v", s.node.Addr, outcome.ErrSilent)
	}
	return err
}
