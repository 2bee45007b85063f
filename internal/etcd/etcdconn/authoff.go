package etcdconn

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/wait"
)

// authOff is the knowledge that etcd's authentication is off.
type authOff struct {
	mu    sync.Mutex
	off   bool        // as an answer of etcd said last; guarded by mu
	at    time.Time   // before the last read that proved it; zero: none has; guarded by mu
	ended wait.Signal // of off, by a read
}

// is reports whether authentication was off when etcd answered last.
func (o *authOff) is() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.off
}

// found notes the answer to the question whether authentication is off.
func (o *authOff) found(off bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.off = off; !off {
		o.at = time.Time{}
	}
}

// proven notes that etcd has served a read with an invalid token, which began at that moment.
func (o *authOff) proven(began time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.off && began.After(o.at) {
		o.at = began
	}
}

// end notes that etcd has refused such a read.
func (o *authOff) end() {
	o.found(false)
	o.ended.Notify()
}

// AuthOff returns when the last read began that proved that etcd's authentication is off, zero: it is
// on, or Authenticated has not asked, or no read has come since. The channel is closed when a read
// finds that it is on.
func (c *Conns) AuthOff() (at time.Time, ended <-chan struct{}) {
	ended = c.authOff.ended.Wait()
	c.authOff.mu.Lock()
	defer c.authOff.mu.Unlock()
	return c.authOff.at, ended
}

// Read is Call for a linearizable read. While etcd's authentication is off, as Authenticated has
// found, the read has an invalid token: etcd serves it as long as authentication is off, so
// Authenticated need not be called meanwhile; see AuthOff.
func (c *Conns) Read(ctx context.Context, deed string, timeout time.Duration, do func(context.Context) error) error {
	if c.authOff.is() {
		began, refused := time.Now(), false
		err := c.call(ctx, deed, timeout, invalidToken, func(ctx context.Context) error {
			err := do(ctx)
			refused = Is(err, rpctypes.ErrGRPCInvalidAuthToken)
			return err
		})
		if !refused {
			if err == nil {
				c.authOff.proven(began)
			}
			return err
		}
		c.authOff.end()
	}
	return c.Call(ctx, deed, timeout, do)
}
