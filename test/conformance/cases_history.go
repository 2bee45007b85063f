package conformance

import (
	"errors"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

func historyCases() []Case {
	resync := pb.SyncKind_SYNC_KIND_RESYNC
	whole := func(w *watch) error {
		return errors.Join(w.created(2, 0), w.sync(&pb.Sync{Kind: resync, Begin: true, End: true, Revision: 20, Kvs: kvs(20, "z")}), w.put(21, "a"))
	}
	want := []Update{batch(at(42), "a"), unit("resync", in(2, 20), "z"), batch(in(2, 21), "a")}
	return []Case{
		{
			Name: "lineage", Rule: "keeps the old position and history until the resync of another history has ended",
			want: append(want, batch(in(2, 22), "b")),
			script: func(s *script) error {
				w, err := began(s)
				if err != nil {
					return err
				}
				w.end <- nil
				if w, err = s.resume(1, 42); err != nil {
					return err
				}
				if err := errors.Join(w.created(2, 0), w.sync(&pb.Sync{Kind: resync, Begin: true, Revision: 20, Kvs: kvs(20, "x")})); err != nil {
					return err
				}
				w.end <- nil
				if w, err = s.resume(1, 42); err != nil {
					return err
				}
				if err := whole(w); err != nil {
					return err
				}
				w.end <- nil
				if w, err = s.resume(2, 21); err != nil {
					return err
				}
				return errors.Join(w.created(2, 21), w.put(22, "b"))
			},
		},
		{
			Name: "lineage-ended", Rule: "creates the watch again, from its position, after Ended{LINEAGE}", want: want,
			script: func(s *script) error {
				w, err := began(s)
				if err != nil {
					return err
				}
				if err := w.ended(&pb.Ended{Reason: pb.EndReason_END_REASON_LINEAGE, ResumeRevision: 43}); err != nil {
					return err
				}
				if w, err = s.resume(1, 42); err != nil {
					return err
				}
				return whole(w)
			},
		},
		{
			Name: "lineage-behind", Rule: "leaves a node of a lower lineage than it has heard of, and takes nothing from it",
			task: Task{Start: "position", Position: in(2, 20)},
			want: []Update{batch(in(2, 21), "a"), batch(in(2, 22), "b")},
			script: func(s *script) error {
				w, err := s.resume(2, 20)
				if err != nil {
					return err
				}
				if err := errors.Join(w.created(2, 20), w.put(21, "a")); err != nil {
					return err
				}
				w.end <- nil
				if w, err = s.resume(2, 21); err != nil {
					return err
				}
				if err := w.created(1, 0); err != nil {
					return err
				}
				_ = w.sync(&pb.Sync{Kind: resync, Begin: true, End: true, Revision: 90, Kvs: kvs(90, "x")}) // fails if the client has left the node
				if w, err = s.resume(2, 21); err != nil {
					return err
				}
				return errors.Join(w.created(2, 21), w.put(22, "b"))
			},
		},
	}
}
