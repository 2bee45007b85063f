package etcdconn

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/wait"
)

// authOff stores whether etcd's authentication is off.
type authOff struct {
	mu    sync.Mutex
	off   bool        // as of etcd's last answer; guarded by mu
	at    time.Time   // start of the last read that proved it; zero: none; guarded by mu
	ended wait.Signal // signals that a read found authentication on
}

// is reports whether authentication was off at etcd's last answer.
func (o *authOff) is() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.off
}

// found stores whether authentication is off, as etcd has answered.
func (o *authOff) found(off bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.off = off; !off {
		o.at = time.Time{}
	}
}

// proven notes that etcd has served a read with an invalid token. The read started at began.
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

// AuthOff returns the start of the last read that proved that etcd's authentication is off. It is
// zero if authentication is on, if Authenticated has not asked, or if no read has followed since. The
// channel is closed when a read finds that it is on.
func (c *Conns) AuthOff() (at time.Time, ended <-chan struct{}) {
	ended = c.authOff.ended.Wait()
	c.authOff.mu.Lock()
	defer c.authOff.mu.Unlock()
	return c.authOff.at, ended
}

// Read is Call for a linearizable read. Once Authenticated has found etcd's authentication off,
// the read has an invalid token. etcd serves it only while authentication is off, so
// Authenticated need not be called again; see AuthOff.
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
