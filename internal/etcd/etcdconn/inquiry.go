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
	// inquiryTimeout is how long a member has to answer an inquiry.
	inquiryTimeout = 500 * time.Millisecond
	// inquiryPause is the shortest time between two inquiries, longestInquiryPause the
	// longest: an etcd that is slow as a whole must not be asked more for it.
	inquiryPause        = time.Second
	longestInquiryPause = 5 * time.Second
)

// inquiry asks every member of etcd, side by side, whether it hangs. A read or a watch
// without an answer does not tell which member does: while etcd elects a leader, the
// healthy ones do not answer either.
type inquiry struct {
	ask func(context.Context) // asks all members and notes which hang

	ctx     context.Context //nolint:containedctx // of all inquiries; ends with close
	cancel  context.CancelFunc
	mu      sync.Mutex
	next    time.Time      // before which there is none; guarded by mu
	pause   time.Duration  // after the last one; guarded by mu
	running bool           // guarded by mu
	all     sync.WaitGroup // Add: guarded by mu, and not after cancel
}

func newInquiry(ask func(context.Context)) *inquiry {
	i := &inquiry{ask: ask}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// start begins an inquiry and returns at once. It does nothing while there is one, or
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
	silent bool // it does not even answer from its own state
	led    bool // it answers a read that etcd's leader must confirm
}

// hanging returns which members hang: those that are silent, if any. If none is, those
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

// inquire asks all members, each by a connection of its own, and has those passed over
// that hang.
func (c *Conns) inquire(ctx context.Context) {
	members, _ := Each(ctx, c, c.react) // a member that cannot be reached is not silent
	if ctx.Err() == nil {
		for _, endpoint := range c.roster.judge(hanging(members)) {
			c.cfg.Logger.Warn("etcd member does not answer: its watches and calls go to another member", "endpoint", endpoint, "for", hangFor)
		}
	}
}

// react asks one member for a read of its own state and for one that the leader
// confirms. A member that refuses either, or the connection, is not silent.
func (c *Conns) react(ctx context.Context, conn *grpc.ClientConn) (r reaction, _ error) {
	ctx, cancel := context.WithTimeout(ctx, inquiryTimeout)
	defer cancel()
	if token := c.login.current.Load(); token != nil { // a refusal is an answer, too
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

// ledBy reports whether the outcome of a read that etcd's leader must confirm shows that
// the member reaches the leader: a refusal does, too.
func ledBy(err error) bool { return err == nil || !wire.IsTimeout(err) && !IsUnavailable(err) }

// Inquire asks all members whether they hang, unless that was done of late, and returns
// at once. It is called when a stream of a member of several has been silent for SlowAfter.
func (c *Conns) Inquire() { c.roster.inquire() }

// SlowAfter is how long a small read, or the creation of a watch, may take until
// Inquire is called.
func (c *Conns) SlowAfter() time.Duration { return c.roster.slow }

// Hung is closed while the member at a remote address hangs, and as soon as it does; nil:
// the address is not known.
func (c *Conns) Hung(remote net.Addr) <-chan struct{} { return c.roster.hung(remote) }
