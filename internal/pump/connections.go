package pump

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/trail"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Connections finds the Conn of a stream's connection. The zero Connections
// knows none.
//
// gRPC tells of connections to a stats.Handler only, and having one costs every
// message. But the streams of a connection have the same peer address, the very
// same pointer, and no other connection's have it.
type Connections struct {
	// Trail is told which revisions are sent to watches; nil: nobody is. Set it
	// before the first Open.
	Trail *trail.Trail

	pumps sync.WaitGroup
	fan   wire.Fan // what goes to many connections is encoded once, too

	mu   sync.Mutex
	live map[net.Addr]*shared // guarded by mu
}

// shared is a connection that has streams.
type shared struct {
	*Conn
	streams int // guarded by Connections.mu
}

// Open returns a new stream of the connection that the call of ctx came by.
// Close it.
func (c *Connections) Open(ctx context.Context) (*Stream, error) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return nil, errors.New("a stream without a connection")
	}
	c.mu.Lock()
	conn := c.live[p.Addr]
	if conn == nil {
		conn = &shared{Conn: New(&c.pumps, &c.fan)}
		conn.trail = c.Trail
		if c.live == nil {
			c.live = make(map[net.Addr]*shared)
		}
		c.live[p.Addr] = conn
	}
	conn.streams++
	c.mu.Unlock()
	s := conn.Open()
	s.left = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if conn.streams--; conn.streams == 0 {
			delete(c.live, p.Addr)
		}
	}
	return s, nil
}

// Wait returns when no pump runs any more.
func (c *Connections) Wait() { c.pumps.Wait() }
