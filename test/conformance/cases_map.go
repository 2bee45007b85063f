package conformance

import (
	"errors"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// othersFirst has each node suspect itself, so that watches are not where the shard map is followed.
func othersFirst(from, member *node) pb.MemberState {
	if from == member {
		return pb.MemberState_MEMBER_STATE_SUSPECT
	}
	return pb.MemberState_MEMBER_STATE_ALIVE
}

func mapCases() []Case {
	return []Case{
		{
			Name: "map-deaf", Rule: "reads at another node if the first endpoint accepts connections and does not answer",
			task: Task{Op: "get"}, deaf: true, want: []Update{{Kind: "get", Position: at(50), KVs: []KeyValue{{rangeStart, "50"}}}},
			script: func(s *script) error {
				r, err := s.read()
				if err != nil {
					return err
				}
				r.answer = &pb.GetResponse{Revision: 50, Lineage: 1, ClusterId: cluster, Kv: keyValue(50, rangeStart)}
				r.reply()
				return nil
			},
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
	}
}
