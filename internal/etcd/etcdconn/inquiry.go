package etcdconn

import (
	"context"
	"net"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/wire"
)

const (
	// inquiryTimeout bounds a member's answer to an inquiry.
	inquiryTimeout = 500 * time.Millisecond
	// inquiryPause is the shortest time between two inquiries, longestInquiryPause the
	// longest: if all of etcd is slow, inquiries must not add load.
	inquiryPause        = time.Second
	longestInquiryPause = 5 * time.Second
)

// inquiry asks every member of etcd in parallel whether it hangs. A read or a watch
// without an answer does not show which member hangs: while etcd elects a leader, the
// healthy members do not answer either.
type inquiry struct {
	ask func(context.Context) // asks all members and stores which ones hang

	ctx     context.Context //nolint:containedctx // of all inquiries; ends with close
	cancel  context.CancelFunc
	mu      sync.Mutex
	next    time.Time      // earliest time of the next inquiry; guarded by mu
	pause   time.Duration  // after the last one; guarded by mu
	running bool           // guarded by mu
	all     sync.WaitGroup // Add: guarded by mu, and not after cancel
}

func newInquiry(ask func(context.Context)) *inquiry {
	i := &inquiry{ask: ask}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// start begins an inquiry and returns at once. It does nothing during an inquiry, or
// soon after one.
func (i *inquiry) start() {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	if i.running || now.Before(i.next) || i.ctx.Err() != nil {
		return
	}
	if i.pause = 2 * i.pause; now.Sub(i.next) > longestInquiryPause {
		i.pause = 0
	}
	i.pause = min(max(i.pause, inquiryPause), longestInquiryPause)
	i.running = true
	i.all.Go(func() {
		i.ask(i.ctx)
		i.mu.Lock()
		defer i.mu.Unlock()
		i.running, i.next = false, time.Now().Add(i.pause)
	})
}

// close ends the running inquiry.
func (i *inquiry) close() {
	i.mu.Lock()
	i.cancel()
	i.mu.Unlock()
	i.all.Wait()
}

// reaction is a member's response to an inquiry.
type reaction struct {
	silent bool // it does not answer even from its own state
	led    bool // it answers a read that etcd's leader must confirm
}

// hanging returns which members hang: the silent ones, if any. Otherwise the members
// that do not reach the leader although others do.
func hanging(members []reaction) []bool {
	hangs, silent, led := make([]bool, len(members)), false, false
	for i, m := range members {
		hangs[i] = m.silent
		silent, led = silent || m.silent, led || m.led
	}
	if silent || !led {
		return hangs
	}
	for i, m := range members {
		hangs[i] = !m.led
	}
	return hangs
}

// inquire asks all members, each on a separate connection, and passes over the members
// that hang.
func (c *Conns) inquire(ctx context.Context) {
	members, _ := Each(ctx, c, c.react) // an unreachable member is not silent
	if ctx.Err() == nil {
		for _, endpoint := range c.roster.judge(hanging(members)) {
			c.cfg.Logger.Warn("etcd member does not answer: its watches and calls go to another member", "endpoint", endpoint, "for", hangFor)
		}
	}
}

// react asks one member for a read of its own state and for a read that the leader
// confirms. A member that refuses either, or the connection, is not silent.
func (c *Conns) react(ctx context.Context, conn *grpc.ClientConn) (r reaction, _ error) {
	ctx, cancel := context.WithTimeout(ctx, inquiryTimeout)
	defer cancel()
	if token := c.login.current.Load(); token != nil { // a refusal is also an answer
		ctx = WithToken(ctx, *token)
	}
	from := etcdserverpb.NewKVClient(conn)
	var both sync.WaitGroup
	both.Go(func() {
		_, err := from.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(c.cfg.ProbeKey), CountOnly: true, Serializable: true})
		r.silent = wire.IsTimeout(err)
	})
	both.Go(func() {
		_, err := c.Header(WithLeader(ctx), from, 0)
		r.led = ledBy(err)
	})
	both.Wait()
	return r, nil
}

// ledBy reports whether the result of a read that etcd's leader must confirm proves that
// the member reaches the leader. A refusal does, too.
func ledBy(err error) bool { return err == nil || !wire.IsTimeout(err) && !IsUnavailable(err) }

// Inquire asks all members whether they hang, unless that was done recently, and returns at
// once. It is called when a stream of one of several members has been silent for SlowAfter.
func (c *Conns) Inquire() { c.roster.inquire() }

// SlowAfter returns how long a small read, or the creation of a watch, may take until
// Inquire is called.
func (c *Conns) SlowAfter() time.Duration { return c.roster.slow }

// Hung returns a channel that is closed while the member at a remote address hangs; nil:
// the address is not known.
func (c *Conns) Hung(remote net.Addr) <-chan struct{} { return c.roster.hung(remote) }
