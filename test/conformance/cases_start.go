package conformance

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

func startCases() []Case {
	return []Case{
		{
			Name: "start-now", Rule: "creates a watch without start, and hands out events after Created",
			want: []Update{batch(at(42), "a")},
			script: func(s *script) error {
				w, err := began(s)
				if err == nil && w.req.GetStart() != nil {
					return fmt.Errorf("asks for start %v", w.req.GetStart())
				}
				return err
			},
		},
		{
			Name: "start-state", Rule: "asks for the state first, and hands it out whole before events",
			task: Task{Start: "state"},
			want: []Update{unit("state", at(41), "a", "b", "c"), batch(at(42), "a")},
			script: func(s *script) error {
				w, err := s.create()
				if err != nil {
					return err
				}
				if !w.req.GetStateFirst() {
					return fmt.Errorf("asks for %v, want state_first", w.req.GetStart())
				}
				state := pb.SyncKind_SYNC_KIND_STATE
				return errors.Join(w.created(1, 41),
					w.sync(&pb.Sync{Kind: state, Begin: true, Revision: 41, Kvs: kvs(41, "a", "b")}),
					w.sync(&pb.Sync{Kind: state, Revision: 41, Kvs: kvs(41, "c")}),
					w.sync(&pb.Sync{Kind: state, End: true, Revision: 41}), w.put(42, "a"))
			},
		},
		{
			Name: "start-position", Rule: "resumes from a position that an earlier process has stored",
			task: Task{Start: "position", Position: at(42)}, want: []Update{batch(at(43), "b")},
			script: func(s *script) error { _, err := goesOn(s); return err },
		},
		{
			Name: "start-token", Rule: "resumes from a token as it is",
			task: Task{Start: "token", Token: token(1, 42)}, want: []Update{batch(at(43), "b")},
			script: func(s *script) error {
				w, err := goesOn(s)
				if err == nil && w.req.GetResumeToken() == nil {
					return errors.New("has not sent the token")
				}
				return err
			},
		},
		{
			Name: "fragments", Rule: "hands out a revision when its last fragment has arrived; resumes before one that was cut",
			want: []Update{batch(at(42), "a", "b"), batch(at(43), "c", "d")},
			script: func(s *script) error {
				w, err := s.create()
				if err != nil {
					return err
				}
				part := func(w *watch, revision int64, key string, more bool) error {
					return w.events(&pb.WatchResponse{Revision: revision, Fragment: more, Events: []*pb.Event{putEvent(revision, rangeStart+key)}})
				}
				if err := errors.Join(w.created(1, 41), part(w, 42, "a", true), part(w, 42, "b", false), part(w, 43, "c", true)); err != nil {
					return err
				}
				w.cut()
				if w, err = s.resume(1, 42); err != nil {
					return err
				}
				return errors.Join(w.created(1, 42), part(w, 43, "c", true), part(w, 43, "d", false))
			},
		},
		{
			Name: "watch-ids", Rule: "takes events with watch_ids as its own, if it has allowed them; passes over IDs that it does not know",
			want: []Update{batch(at(42), "a"), batch(at(43), "b")},
			script: func(s *script) error {
				w, err := s.create()
				if err != nil {
					return err
				}
				if err := errors.Join(w.created(1, 41), w.put(42, "a")); err != nil {
					return err
				}
				w.mu.Lock()
				allowed := w.watchIDs
				w.mu.Unlock()
				if !allowed {
					return w.put(43, "b")
				}
				return w.send(&pb.WatchResponse{
					WatchIds: []int64{w.req.GetWatchId() + 1000, w.req.GetWatchId()},
					Revision: 43, Events: []*pb.Event{putEvent(43, rangeStart+"b")},
				})
			},
		},
	}
}

func resumeCases() []Case {
	two := []Update{batch(at(42), "a"), batch(at(43), "b")}
	// lost makes the client lose its stream after revision 42, and resume.
	lost := func(lose func(s *script, w *watch) error) func(s *script) error {
		return func(s *script) error {
			w, err := began(s)
			if err != nil {
				return err
			}
			if err := lose(s, w); err != nil {
				return err
			}
			_, err = goesOn(s)
			return err
		}
	}
	return []Case{
		{
			Name: "cut", Rule: "resumes at another node after the last revision when its node dies", want: two,
			script: lost(func(s *script, w *watch) error {
				select {
				case <-s.handed:
				case <-s.ctx.Done():
				}
				w.node.kill()
				return nil
			}),
		},
		{
			Name: "stream-end", Rule: "resumes when the node ends the stream without an error", want: two,
			script: lost(func(_ *script, w *watch) error { w.end <- nil; return nil }),
		},
		{
			Name: "silence", Rule: "leaves a node that sends nothing, not even progress, on an open connection", want: two,
			script: func(s *script) error {
				w, err := began(s)
				if err != nil {
					return err
				}
				w.node.mute.Store(true)
				next, err := goesOn(s)
				if err == nil && next.node == w.node {
					return errors.New("came back to the silent node")
				}
				return err
			},
		},
		{
			Name: "unavailable", Rule: "tries again, or elsewhere, when a node refuses the stream with UNAVAILABLE", want: two[:1],
			script: func(s *script) error {
				refusal := fault(codes.Unavailable, "NOT_READY", 100*time.Millisecond, nil)
				s.refuse.Store(&refusal)
				<-s.refused
				_, err := began(s)
				return err
			},
		},
		{
			Name: "progress", Rule: "moves its position with progress, and resumes after that",
			want: []Update{batch(at(42), "a"), batch(at(61), "b")},
			script: func(s *script) error {
				w, err := began(s)
				if err != nil {
					return err
				}
				if err := w.progress(60); err != nil {
					return err
				}
				w.end <- nil
				if w, err = s.resume(1, 60); err != nil {
					return err
				}
				return errors.Join(w.created(1, 60), w.put(61, "b"))
			},
		},
		{
			Name: "repeated", Rule: "discards events that it has handed out before", want: two,
			script: func(s *script) error {
				w, err := began(s)
				if err != nil {
					return err
				}
				w.end <- nil
				if w, err = s.resume(1, 42); err != nil {
					return err
				}
				return errors.Join(w.created(1, 42), w.put(42, "a"), w.put(43, "b"))
			},
		},
		{
			Name: "outside", Rule: "leaves a node that sends a key outside of the range, and hands out nothing of it", want: two,
			script: lost(func(_ *script, w *watch) error {
				return w.events(&pb.WatchResponse{Revision: 43, Events: []*pb.Event{putEvent(43, "/other")}})
			}),
		},
	}
}

func moveCases() []Case {
	two := []Update{batch(at(42), "a"), batch(at(43), "b")}
	// sent makes a node end the watch and name the last node as the best one.
	sent := func(reason pb.EndReason) func(s *script) error {
		return func(s *script) error {
			w, err := began(s)
			if err != nil {
				return err
			}
			there := s.other(w.node)
			if err := w.ended(&pb.Ended{Reason: reason, Endpoints: []string{there.address}, ResumeRevision: 43, ResumeToken: token(1, 42)}); err != nil {
				return err
			}
			next, err := goesOn(s)
			if err == nil && next.node != there {
				return fmt.Errorf("went to %s, was sent to %s", next.node.name, there.name)
			}
			return err
		}
	}
	return []Case{
		{Name: "draining", Rule: "resumes at the endpoint that Ended{DRAINING} names", want: two, script: sent(pb.EndReason_END_REASON_DRAINING)},
		{Name: "moved", Rule: "resumes at the endpoint that Ended{UNAVAILABLE} names", want: two, script: sent(pb.EndReason_END_REASON_UNAVAILABLE)},
		{Name: "unknown-reason", Rule: "takes a reason that it does not know as UNAVAILABLE", want: two, script: sent(pb.EndReason(99))},
		{
			Name: "retry-after", Rule: "waits for retry_after before it creates the watch again", want: two,
			script: func(s *script) error {
				w, err := began(s)
				if err != nil {
					return err
				}
				const wait = 500 * time.Millisecond
				told := time.Now()
				if err := w.ended(&pb.Ended{Reason: pb.EndReason_END_REASON_LIMIT, RetryAfter: durationpb.New(wait), ResumeRevision: 43}); err != nil {
					return err
				}
				_, err = goesOn(s)
				if waited := time.Since(told); err == nil && waited < wait {
					return fmt.Errorf("came back after %v, the node asked for %v", waited, wait)
				}
				return err
			},
		},
	}
}

func unitCases() []Case {
	delta, resync, state := pb.SyncKind_SYNC_KIND_DELTA, pb.SyncKind_SYNC_KIND_RESYNC, pb.SyncKind_SYNC_KIND_STATE
	deltaAt60 := func(w *watch) error {
		return errors.Join(
			w.sync(&pb.Sync{Kind: delta, Begin: true, Revision: 60, FromRevision: 42, Kvs: kvs(60, "d")}),
			w.sync(&pb.Sync{Kind: delta, End: true, Revision: 60, Kvs: kvs(60, "b"), Deleted: [][]byte{[]byte(rangeStart + "a")}}))
	}
	wantDelta := []Update{batch(at(42), "a"), unit("delta", at(60), "b", "d").without("a"), batch(at(61), "e")}
	after := func(w *watch) error { return w.put(61, "e") }
	return []Case{
		{
			Name: "delta", Rule: "hands out a delta with changed and deleted keys when its last part has arrived", want: wantDelta,
			script: func(s *script) error {
				w, err := began(s)
				if err != nil {
					return err
				}
				return errors.Join(deltaAt60(w), after(w))
			},
		},
		{
			Name: "delta-cut", Rule: "drops a unit that is cut, and resumes from the position before it", want: wantDelta,
			script: func(s *script) error {
				w, err := began(s)
				if err != nil {
					return err
				}
				if err := w.sync(&pb.Sync{Kind: delta, Begin: true, Revision: 50, FromRevision: 42, Kvs: kvs(50, "x")}); err != nil {
					return err
				}
				w.cut()
				if w, err = s.resume(1, 42); err != nil {
					return err
				}
				return errors.Join(w.created(1, 42), deltaAt60(w), after(w))
			},
		},
		{
			Name: "delta-again", Rule: "drops a unit when another one begins before its end", want: wantDelta,
			script: func(s *script) error {
				w, err := began(s)
				if err != nil {
					return err
				}
				return errors.Join(w.sync(&pb.Sync{Kind: delta, Begin: true, Revision: 50, FromRevision: 42, Kvs: kvs(50, "x")}), deltaAt60(w), after(w))
			},
		},
		{
			Name: "delta-gap", Rule: "does not apply a delta from a revision above its position, and leaves the node", want: wantDelta,
			script: func(s *script) error {
				w, err := began(s)
				if err != nil {
					return err
				}
				if err := w.sync(&pb.Sync{Kind: delta, Begin: true, End: true, Revision: 60, FromRevision: 50, Kvs: kvs(60, "x")}); err != nil {
					return err
				}
				if w, err = s.resume(1, 42); err != nil {
					return err
				}
				return errors.Join(w.created(1, 42), deltaAt60(w), after(w))
			},
		},
		{
			Name: "resync", Rule: "hands out a resync as the whole state",
			want: []Update{batch(at(42), "a"), unit("resync", at(60), "b", "c"), batch(at(61), "e")},
			script: func(s *script) error {
				w, err := began(s)
				if err != nil {
					return err
				}
				return errors.Join(
					w.sync(&pb.Sync{Kind: resync, Begin: true, Revision: 60}),
					w.sync(&pb.Sync{Kind: resync, Revision: 60, Kvs: kvs(60, "b", "c")}),
					w.sync(&pb.Sync{Kind: resync, End: true, Revision: 60}), after(w))
			},
		},
		{
			Name: "progress-in-unit", Rule: "does not apply progress in the middle of a unit: asks for the state again",
			task: Task{Start: "state"}, want: []Update{unit("state", at(72), "a")},
			script: func(s *script) error {
				w, err := s.create()
				if err != nil {
					return err
				}
				if err := errors.Join(w.created(1, 50), w.sync(&pb.Sync{Kind: state, Begin: true, Revision: 50, Kvs: kvs(50, "x")}), w.progress(70)); err != nil {
					return err
				}
				w.end <- nil
				if w, err = s.create(); err != nil {
					return err
				}
				if !w.req.GetStateFirst() {
					return fmt.Errorf("asks for %v, want state_first", w.req.GetStart())
				}
				return errors.Join(w.created(1, 72), w.sync(&pb.Sync{Kind: state, Begin: true, End: true, Revision: 72, Kvs: kvs(72, "a")}))
			},
		},
		{
			Name: "conflated", Rule: "asks for conflation, and hands out conflated units",
			task: Task{ConflateMS: 100}, want: []Update{unit("conflated", at(50), "a").without("b")},
			script: func(s *script) error {
				w, err := s.create()
				if err != nil {
					return err
				}
				if d := w.req.GetConflate().AsDuration(); d != 100*time.Millisecond || !w.req.GetAllowSync() {
					return fmt.Errorf("asks for conflation %v, allow_sync %v", d, w.req.GetAllowSync())
				}
				return errors.Join(w.created(1, 41), w.sync(&pb.Sync{
					Kind: pb.SyncKind_SYNC_KIND_CONFLATED, Begin: true, End: true, Revision: 50, FromRevision: 41,
					Kvs: kvs(50, "a"), Deleted: [][]byte{[]byte(rangeStart + "b")},
				}))
			},
		},
	}
}
