// Package roster combines the views of gossip and of the shard map on the nodes of the cluster:
// gossip reports the nodes that are alive, the map those that an operator has drained.
//
// Read [Roster] first. All its methods may be called from any goroutine.
package roster

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Config configures a Roster. Its functions may be called from any goroutine.
type Config struct {
	Self shard.NodeID
	// Members returns the nodes that gossip sees, Map the newest shard map; nil: none yet.
	Members func() []shard.Member
	Map     func() *shard.Map
	// Reach returns the connection to a node, even if gossip reports it as gone.
	Reach func(shard.NodeID) (grpc.ClientConnInterface, error)
	// SignOfLife bounds the time in which other nodes answer a health check.
	SignOfLife time.Duration
}

// Roster returns the nodes of the cluster, as gossip and the shard map show them.
type Roster struct{ cfg Config }

// asked is the number of nodes that AnyAnswers asks. One answer is enough.
const asked = 8

// New returns a Roster.
func New(cfg Config) *Roster { return &Roster{cfg: cfg} }

// All returns the members that gossip sees. Nodes that an operator has drained count as draining.
func (r *Roster) All() []shard.Member {
	members := r.cfg.Members()
	if m := r.cfg.Map(); m != nil && len(m.Drained) > 0 {
		for i := range members {
			members[i].Draining = members[i].Draining || m.IsDrained(members[i].Name)
		}
	}
	return members
}

// Member returns gossip's view of a node.
func (r *Roster) Member(name shard.NodeID) (shard.Member, bool) {
	for _, m := range r.cfg.Members() {
		if m.Name == name {
			return m, true
		}
	}
	return shard.Member{}, false
}

// Accompanied reports whether other nodes can take over the shards of this one.
func (r *Roster) Accompanied() bool { return len(r.Heirs()) > 0 }

// Heirs returns the other nodes that can take over shards and clients.
func (r *Roster) Heirs() (out []shard.NodeID) {
	for _, m := range r.All() {
		if m.Name != r.cfg.Self && m.State == shard.Alive && !m.Draining {
			out = append(out, m.Name)
		}
	}
	return out
}

// Leaving reports whether another node drains or has left, and therefore hands over its shards.
func (r *Roster) Leaving(node shard.NodeID) bool {
	for _, m := range r.All() {
		if m.Name == node {
			return m.Draining || m.State == shard.Left
		}
	}
	return false
}

// AnyAnswers asks some of the other nodes for their health, and reports whether
// will accepts one of the answers.
func (r *Roster) AnyAnswers(ctx context.Context, others []shard.NodeID, will func(healthgrpc.HealthCheckResponse_ServingStatus) bool) bool {
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	others = others[:min(len(others), asked)]
	ctx, cancel := context.WithTimeout(ctx, r.cfg.SignOfLife)
	defer cancel()
	answers := make(chan bool, len(others))
	for _, node := range others {
		go func() {
			conn, err := r.cfg.Reach(node) // gossip may report all of them as gone
			var answer *healthgrpc.HealthCheckResponse
			if err == nil {
				answer, err = healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
			}
			answers <- err == nil && will(answer.GetStatus())
		}()
	}
	for range others {
		if <-answers {
			return true
		}
	}
	return false
}
