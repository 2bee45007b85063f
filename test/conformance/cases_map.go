package conformance

import (
	"errors"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// othersFirst makes each node suspect itself, so that watches are on another node than the stream of
// the shard map.
func othersFirst(from, member *node) pb.MemberState {
	if from == member {
		return pb.MemberState_MEMBER_STATE_SUSPECT
	}
	return pb.MemberState_MEMBER_STATE_ALIVE
}

// selfFirst makes each node suspect all others, so that watches are on the node with the stream of
// the shard map.
func selfFirst(from, member *node) pb.MemberState {
	if from != member {
		return pb.MemberState_MEMBER_STATE_SUSPECT
	}
	return pb.MemberState_MEMBER_STATE_ALIVE
}

// silenced waits for two watches, a get and the shard map of a client at one node, which then falls
// silent.
func silenced(s *script) error {
	from, err := s.follow()
	if err != nil {
		return err
	}
	for range 2 {
		w, err := began(s)
		if err == nil && w.node != from {
			err = errors.New("watches at a suspect, another node is alive")
		}
		if err != nil {
			return err
		}
	}
	r, err := s.read()
	if err == nil && r.node != from {
		err = errors.New("reads at a suspect, another node is alive")
	}
	if err != nil {
		return err
	}
	if err := s.handedOut(2); err != nil {
		return err
	}
	from.mute.Store(true)
	for resumed := 0; resumed < 2; {
		w, err := s.resume(1, 42)
		if err != nil {
			return err
		}
		if w.node == from {
			continue // it no longer knows that the node is silent, and leaves it again
		}
		if err := errors.Join(w.created(1, 42), w.put(43, "b")); err != nil {
			return err
		}
		resumed++
	}
	if err := s.handedOut(2); err != nil {
		return err
	}
	if err := answer(s); err != nil {
		return err
	}
	_, err = s.follow(from)
	return err
}

// answer answers a get.
func answer(s *script) error {
	r, err := s.read()
	if err != nil {
		return err
	}
	r.answer = &pb.GetResponse{Revision: 50, Lineage: 1, ClusterId: cluster, Kv: keyValue(50, rangeStart)}
	r.reply()
	return nil
}

// foreign rebuilds all nodes except the one with the shard map, which still answers.
func foreign(s *script) error {
	from, err := s.follow()
	if err != nil {
		return err
	}
	w, err := began(s)
	if err != nil {
		return err
	}
	for _, n := range s.nodes {
		n.rebuilt.Store(n != from)
	}
	if err := s.handedOut(1); err != nil {
		return err
	}
	w.end <- nil
	for { // until the client has the map of the rebuilt nodes, and accepts their updates
		select {
		case w := <-s.creates:
			if w.node == from {
				_ = w.ended(&pb.Ended{Reason: pb.EndReason_END_REASON_UNAVAILABLE})
				continue
			}
			resync := &pb.Sync{Kind: pb.SyncKind_SYNC_KIND_RESYNC, Begin: true, End: true, Revision: 20, Kvs: kvs(20, "z")}
			_ = errors.Join(w.created(1, 0), w.sync(resync)) // fails if the client has left the node
		case <-s.handed:
			return nil
		case <-s.ctx.Done():
			return errors.New("the client took nothing from the rebuilt nodes")
		}
	}
}

func mapCases() []Case {
	got := Update{Kind: "get", Position: at(50), KVs: []KeyValue{{rangeStart, "50"}}}
	return []Case{
		{
			Name: "map-deaf", Rule: "reads at another node if the first endpoint accepts connections and does not answer",
			task: Task{Op: "get"}, deaf: true, want: []Update{got}, script: answer,
		},
		{
			Name: "silence-together", Rule: "resumes all watches and reads, and follows the shard map, at other nodes when their node is silent",
			task: Task{Op: "together"}, view: selfFirst,
			want: []Update{batch(at(42), "a"), batch(at(42), "a"), batch(at(43), "b"), batch(at(43), "b"), got}, script: silenced,
		},
		{
			Name: "map-silent", Rule: "follows the shard map at another node when its node no longer answers, without a watch there",
			view: othersFirst, want: []Update{batch(at(42), "a"), batch(at(43), "b")},
			script: func(s *script) error {
				from, err := s.follow()
				if err != nil {
					return err
				}
				w, err := began(s)
				if err == nil && w.node == from {
					err = errors.New("watches at a suspect, others are alive")
				}
				if err != nil {
					return err
				}
				from.mute.Store(true)
				if _, err := s.follow(from); err != nil {
					return err
				}
				return w.put(43, "b")
			},
		},
		{
			Name: "map-foreign", Rule: "follows the shard map at another node when a node turns out to be of another cluster than the map",
			view: othersFirst,
			want: []Update{batch(at(42), "a"), unit("resync", Position{rebuilt, 1, 20}, "z")}, script: foreign,
		},
	}
}
