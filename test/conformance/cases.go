package conformance

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// Cases returns the table of cases.
func Cases() []Case {
	var out []Case
	for _, group := range [][]Case{startCases(), resumeCases(), moveCases(), unitCases(), historyCases(), endCases(), readCases(), mapCases()} {
		out = append(out, group...)
	}
	for i := range out {
		out[i].task.Units = out[i].Name != "compacted"
	}
	return out
}

// at returns a position in the first lineage, in a position in any.
func at(revision int64) Position                 { return in(1, revision) }
func in(lineage uint64, revision int64) Position { return Position{cluster, lineage, revision} }

// batch returns the update for put.
func batch(p Position, keys ...string) Update {
	u := Update{Kind: "batch", Position: p}
	for _, key := range keys {
		u.Events = append(u.Events, Event{"PUT", rangeStart + key, fmt.Sprint(p.Revision)})
	}
	return u
}

// unit returns the update for a unit with keys that have changed at its revision.
func unit(kind string, p Position, keys ...string) Update {
	u := Update{Kind: kind, Position: p}
	for _, key := range keys {
		u.KVs = append(u.KVs, KeyValue{rangeStart + key, fmt.Sprint(p.Revision)})
	}
	return u
}

func (u Update) without(keys ...string) Update {
	for _, key := range keys {
		u.Deleted = append(u.Deleted, rangeStart+key)
	}
	return u
}

func kvs(revision int64, keys ...string) (out []*pb.KeyValue) {
	for _, key := range keys {
		out = append(out, keyValue(revision, rangeStart+key))
	}
	return out
}

// began checks that the client's first watch starts after revision 41, and sends revision 42.
func began(s *script) (*watch, error) {
	w, err := s.create()
	if err != nil {
		return nil, err
	}
	return w, errors.Join(w.created(1, 41), w.put(42, "a"))
}

// goesOn checks that the client resumes after revision 42, and sends 43.
func goesOn(s *script) (*watch, error) {
	w, err := s.resume(1, 42)
	if err != nil {
		return nil, err
	}
	return w, errors.Join(w.created(1, 42), w.put(43, "b"))
}

func endCases() []Case {
	// ends returns a script in which the node permanently ends the watch.
	ends := func(reason pb.EndReason) func(s *script) error {
		return func(s *script) error {
			w, err := s.create()
			if err != nil {
				return err
			}
			return w.ended(&pb.Ended{Reason: reason, Message: "the script says so"})
		}
	}
	failed := func(why string) []Update { return []Update{{Error: why}} }
	return []Case{
		{Name: "invalid", Rule: "reports Ended{INVALID}, and does not try again", want: failed("invalid"), script: ends(pb.EndReason_END_REASON_INVALID)},
		{Name: "denied", Rule: "reports Ended{DENIED}, and does not try again", want: failed("denied"), script: ends(pb.EndReason_END_REASON_DENIED)},
		{Name: "unauthenticated", Rule: "reports Ended{UNAUTHENTICATED} if it has no source of tokens", want: failed("unauthenticated"), script: ends(pb.EndReason_END_REASON_UNAUTHENTICATED)},
		{
			Name: "compacted", Rule: "without units: reports Ended{COMPACTED}, perhaps after it has asked other nodes",
			task: Task{Start: "position", Position: at(42)}, want: failed("compacted"),
			script: func(s *script) error {
				w, err := s.resume(1, 42)
				if err == nil && w.req.GetAllowSync() {
					return errors.New("asks for units")
				}
				if err != nil {
					return err
				}
				go func() { // until the case ends
					for err := error(nil); err == nil; w, err = s.create() {
						_ = w.ended(&pb.Ended{Reason: pb.EndReason_END_REASON_COMPACTED, Floor: 50})
					}
				}()
				return nil
			},
		},
	}
}

func readCases() []Case {
	page := func(keys ...string) *pb.ListResponse {
		return &pb.ListResponse{Revision: 50, Lineage: 1, ClusterId: cluster, Kvs: kvs(50, keys...)}
	}
	return []Case{
		{
			Name: "get", Rule: "asks the node that NOT_HERE names",
			task: Task{Op: "get"}, want: []Update{{Kind: "get", Position: at(50), KVs: []KeyValue{{rangeStart, "50"}}}},
			script: func(s *script) error {
				r, err := s.read()
				if err != nil {
					return err
				}
				there := s.other(r.node)
				r.err = fault(codes.Unavailable, "NOT_HERE", time.Millisecond, map[string]string{"endpoints": there.address, "shard": "1", "epoch": "1"})
				from := r.node
				r.reply()
				if r, err = s.read(); err != nil {
					return err
				}
				if r.node != there {
					return fmt.Errorf("%s named %s, the client asked %s", from.name, there.name, r.node.name)
				}
				r.answer = &pb.GetResponse{Revision: 50, Lineage: 1, ClusterId: cluster, Kv: keyValue(50, rangeStart)}
				r.reply()
				return nil
			},
		},
		{
			Name: "get-refused", Rule: "reports UNAUTHENTICATED of a read, perhaps after it has asked again, if its source has no other token",
			task: Task{Op: "get", Bearer: "expired"}, want: []Update{{Error: "unauthenticated"}},
			script: func(s *script) error {
				r, err := s.read()
				if err == nil && r.bearer != "Bearer expired" {
					return fmt.Errorf("authenticates with %q, want the token of the task", r.bearer)
				}
				if err != nil {
					return err
				}
				go func() { // until the case ends
					for ; err == nil; r, err = s.read() {
						r.err = fault(codes.Unauthenticated, "UNAUTHENTICATED", 0, nil)
						r.reply()
					}
				}()
				return nil
			},
		},
		{
			Name: "list", Rule: "completes a list that breaks at the same revision, each key once",
			task: Task{Op: "list"}, want: []Update{unit("list", at(50), "a", "b", "c")},
			script: func(s *script) error {
				r, err := s.read()
				if err != nil {
					return err
				}
				r.chunks, r.err = []*pb.ListResponse{page("a", "b")}, fault(codes.Unavailable, "", 0, nil)
				r.reply()
				if r, err = s.read(); err != nil {
					return err
				}
				switch from := string(r.list.GetKey()); {
				case from == rangeStart: // again, from the beginning
					r.chunks = []*pb.ListResponse{page("a", "b"), page("c")}
				case from == rangeStart+"b" && r.list.GetRevision() == 50:
					r.chunks = []*pb.ListResponse{page("b", "c")}
				case from > rangeStart+"b" && from <= rangeStart+"c" && r.list.GetRevision() == 50:
					r.chunks = []*pb.ListResponse{page("c")}
				default:
					return fmt.Errorf("continues at %q at revision %d", from, r.list.GetRevision())
				}
				r.reply()
				return nil
			},
		},
	}
}
