package tier

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Apiserver is the name of the direct source, an apiserver.
const Apiserver = "apiserver"

// warmSilence bounds the silence of a node while it sends its state.
const warmSilence = 2 * time.Second

// Source follows a resource at an apiserver or at another node. It is a
// cache.Source.
type Source struct {
	t  *Tier
	at *replica.Failover
}

// Source returns the source of a resource. direct follows it at an apiserver. Each stream
// from another node calls observe with its request, and the returned function with each update
// before the consumer gets the update.
func (t *Tier) Source(r source.Resource, direct replica.Source, observe func(kv.FollowRequest) func(*kv.Update)) *Source {
	peer := func(node shard.NodeID, direct bool) (replica.Candidate, bool) {
		link, err := t.peers.Link(node)
		if err != nil {
			return replica.Candidate{}, false // the node has left or is dead
		}
		p := &replica.Peer{Link: link, Self: t.cfg.Self.Name, Encoding: r.Encoding.MediaType(), RequireDirect: direct}
		if !direct {
			p.Silence = warmSilence
		}
		return replica.Candidate{Name: string(node), Source: &observed{p, observe}}, true
	}
	return &Source{t, &replica.Failover{
		Candidates: func() []replica.Candidate {
			return candidates(t.nodes(), t.cfg.Self.Name, r, replica.Candidate{Name: Apiserver, Direct: true, Source: direct}, peer)
		},
		Warm: func() (out []replica.Candidate) {
			for _, node := range rank(t.nodes(), r) {
				if c, ok := peer(node, false); ok && node != t.cfg.Self.Name {
					out = append(out, c)
				}
			}
			return out
		},
		Noticed: func(n replica.Notice) {
			t.cfg.Logger.Info(string(n.What), "resource", r.String(), "source", n.Source, "version", n.Revision, "error", n.Err)
		},
		Logger: t.cfg.Logger,
	}}
}

// candidates returns the sources of a resource, best first: the nodes ranked before this one,
// an apiserver, and the nodes ranked after it, in case this node reaches no apiserver. A node
// that is not ranked is draining, and prefers all other nodes to an apiserver.
func candidates(nodes []shard.NodeID, self shard.NodeID, r source.Resource, direct replica.Candidate, peer func(shard.NodeID, bool) (replica.Candidate, bool)) (out []replica.Candidate) {
	ranked := rank(nodes, r)
	own := slices.Index(ranked, self)
	for i, node := range ranked {
		if i == own {
			out = append(out, direct)
		} else if c, ok := peer(node, true); ok {
			out = append(out, c)
		}
	}
	if own < 0 {
		out = append(out, direct)
	}
	return out
}

// Follow implements cache.Source. It begins when this node has found other nodes, or none in time:
// the first state and window should come from them.
func (s *Source) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		if !wait.For(ctx, s.t.settled) {
			return
		}
		s.at.Follow(ctx, req)(yield)
	}
}

// Direct reports whether an apiserver is followed, and returns a channel that is closed
// when this may have changed.
func (s *Source) Direct() (bool, <-chan struct{}) {
	changed := s.at.Changed() // before Current, to miss no change
	_, direct := s.at.Current()
	return direct, changed
}

// Name returns the name of the followed node, or Apiserver; "": none is followed.
func (s *Source) Name() string {
	name, _ := s.at.Current()
	return name
}

// observed is a stream from another node whose updates are observed.
type observed struct {
	*replica.Peer
	observe func(kv.FollowRequest) func(*kv.Update)
}

// Follow implements replica.Source.
func (o *observed) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		see := o.observe(req)
		req.Progress = nil // so that see gets all updates
		for u, err := range o.Peer.Follow(ctx, req) {
			if err == nil {
				see(&u)
			}
			if !yield(u, err) {
				return
			}
		}
	}
}
