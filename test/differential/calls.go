package differential

import (
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// write sends a call to the plain etcd and the tier, and compares. Both must have the same effect,
// or later answers cannot be compared.
func (r *run) write(q question) answer { return r.writeAs(q, r.someone()) }

// writeAs is write with the given caller.
func (r *run) writeAs(q question, who int) answer {
	q.who = who
	r.report.Asked[q.method]++
	node := r.IntN(len(r.Through))
	want := r.call(q, r.Plain)
	got := r.call(q, r.Through[node])
	r.wrote(q, node, want, got)
	return want
}

func (r *run) wrote(q question, node int, want, got answer) {
	diff := difference(want, got, twoEtcds())
	if nothing := want.end != nil || headerOf(want).GetRevision() <= r.revision; diff != "" && nothing && r.nameless(q.who) && endOf(got) == userEmpty {
		r.tolerate(namelessFirst())
		return
	}
	if diff != "" {
		r.differ("write %s\nat node %d: %s", q, node, diff)
		if headerOf(want).GetRevision() != headerOf(got).GetRevision() {
			r.fatal = errors.New("the two etcds have diverged")
		}
	}
	r.checkIdentity(q, node, got)
	if h := headerOf(want); h != nil {
		r.revision = max(r.revision, h.GetRevision())
	}
	if len(q.sent) == 0 || want.end != nil {
		return
	}
	switch m := q.sent[0].(type) {
	case *pb.CompactionRequest:
		r.compacted = max(r.compacted, m.GetRevision())
	case *pb.LeaseGrantRequest:
		r.leases = append(r.leases, m.GetID())
	case *pb.LeaseRevokeRequest:
		r.leases = slices.DeleteFunc(r.leases, func(id int64) bool { return id == m.GetID() })
	}
}

// checkIdentity checks that the header of an answer through the tier is that of the etcd behind it,
// except for the member.
func (r *run) checkIdentity(q question, node int, a answer) {
	h := headerOf(a)
	if h == nil {
		return
	}
	if h.GetClusterId() != r.ident.GetClusterId() || h.GetRaftTerm() != r.ident.GetRaftTerm() || h.GetMemberId() == 0 {
		r.differ("%s\nat node %d: header {%s} of an etcd with {%s}", q, node, oneLine(h), oneLine(r.ident))
	}
}

// read sends a call to the etcd behind the tier directly and through a node, and compares. There
// are no concurrent writes.
func (r *run) read(q question) {
	q.who = r.someone()
	r.report.Asked[q.method]++
	node := r.IntN(len(r.Through))
	want, got := r.call(q, r.Direct), r.call(q, r.Through[node])
	if q.method == "etcdserverpb.KV.RangeStream" {
		got = r.join(q, node, got)
		want, _ = joined(want)
	}
	diff := difference(want, got, sameEtcd())
	if diff != "" && r.older(q, got) {
		r.tolerate(olderReads())
		return
	}
	if diff != "" {
		r.differ("read %s\nat node %d: %s", q, node, diff)
	}
}

// join joins the chunks of a stream.
func (r *run) join(q question, node int, a answer) answer {
	whole, wrong := joined(a)
	if wrong != "" {
		r.differ("read %s\nat node %d: %s", q, node, wrong)
	}
	return whole
}

// older reports whether an answer to a serializable read is right for the revision in its header.
func (r *run) older(q question, got answer) bool {
	req, ok := q.sent[0].(*pb.RangeRequest)
	h := headerOf(got)
	if !ok || !req.GetSerializable() || req.GetRevision() > 0 || h == nil || h.GetRevision() >= r.revision {
		return false
	}
	// The state before the compact revision is unknown.
	return h.GetRevision() < r.compacted || r.asOf(q, got) == ""
}

// asOf compares an answer with etcd's answer at the revision in its header.
func (r *run) asOf(q question, got answer) string {
	then := proto.Clone(q.sent[0]).(*pb.RangeRequest)
	if then.GetRevision() <= 0 {
		then.Revision = headerOf(got).GetRevision()
	}
	want := r.call(question{method: q.method, sent: []proto.Message{then}, who: q.who}, r.Direct)
	if q.method == "etcdserverpb.KV.RangeStream" {
		want, _ = joined(want)
	}
	return difference(want, got, append(sameEtcd(), "revision"))
}
