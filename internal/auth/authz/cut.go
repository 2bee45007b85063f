package authz

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// farewell is how long a connection stays open after its identity has lost its last right: its watches end
// first, with the reason for the client.
const farewell = time.Second

// connected are the open connections.
type connected struct {
	mu  sync.Mutex
	all map[*presence]struct{} // guarded by mu
}

func (c *connected) add(p *presence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[*presence]struct{})
	}
	c.all[p] = struct{}{}
}

func (c *connected) remove(p *presence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, p)
}

func (c *connected) list() []*presence {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*presence, 0, len(c.all))
	for p := range c.all {
		out = append(out, p)
	}
	return out
}

// cut ends the connections with an identity that had rights when it arrived and has none under the current
// policy. Other identities on the connection, as with a proxy, connect again.
func (a *Authorizer) cut() {
	s := a.state.Load()
	verdicts := make(map[string]bool) // whether callers have rights, by names: many share theirs
	for _, p := range a.connected.list() {
		who := p.lost(func(names policy.Names) bool {
			key := strings.Join(names, "\x00")
			known, judged := verdicts[key]
			if !judged {
				known = s.policy.Identity(names).Known()
				verdicts[key] = known
			}
			return known
		})
		if who == "" {
			continue
		}
		ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: p.raw.RemoteAddr()})
		a.cfg.Audit.refused(ctx, who, &kv.DeniedError{Detail: fmt.Sprintf("the policy leaves %s no right: its connection ends", who)})
		_ = p.raw.Close() // this also ends its calls
	}
}

// lost returns an identity of the connection that had rights and has none any more; "": there is none.
func (p *presence) lost(known func(policy.Names) bool) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for who, names := range p.trusted {
		if !known(names) {
			return who
		}
	}
	return ""
}
