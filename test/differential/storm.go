package differential

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// storm reads and watches during writes. It compares each answer with etcd's answer at its
// revision.
func (r *run) storm() {
	r.valid = true
	var writes []question
	var nodes []int
	for range 10 + r.IntN(40) {
		choose(
			r.dice,
			choice{6, func() { writes = append(writes, ask("KV.Put", r.put())) }},
			choice{1, func() { writes = append(writes, ask("KV.DeleteRange", r.deleteRange())) }},
			choice{3, func() { writes = append(writes, ask("KV.Txn", r.txn(1))) }},
		)
		writes[len(writes)-1].who = r.someone()
		nodes = append(nodes, r.IntN(len(r.Through)))
	}
	type outcome struct{ want, got answer }
	outcomes := make(chan outcome, len(writes))
	go func() {
		defer close(outcomes)
		for i, q := range writes {
			outcomes <- outcome{r.call(q, r.Plain), r.call(q, r.Through[nodes[i]])}
		}
	}()
	for _, p := range r.streams {
		p.counted = false
	}
	written := 0
	// hear handles the available outcomes: the acknowledged writes.
	hear := func(wait bool) {
		for written < len(writes) {
			var o outcome
			if wait {
				o = <-outcomes
			} else {
				select {
				case o = <-outcomes:
				default:
					return
				}
			}
			r.report.Asked[writes[written].method]++
			r.wrote(writes[written], nodes[written], o.want, o.got)
			written++
		}
	}
	for range 4 + r.IntN(12) {
		hear(false)
		choose(
			r.dice,
			choice{5, func() { r.readDuring(ask("KV.Range", r.rangeRequest())) }},
			choice{1, func() { r.readDuring(ask("KV.RangeStream", r.rangeRequest())) }},
			choice{2, func() { r.watchRequests(true) }},
			choice{1, func() { r.strayProgress(r.somePair()) }},
		)
	}
	hear(true)
	r.settle()
}

// readDuring reads through a node during writes.
func (r *run) readDuring(q question) {
	q.who = r.someone()
	req := q.sent[0].(*pb.RangeRequest)
	if req.Revision > r.revision || req.Revision == 0 && oneIn(r, 3) {
		req.Revision = r.revision
	}
	r.report.Asked[q.method]++
	node, acked := r.IntN(len(r.Through)), r.revision
	got := r.call(q, r.Through[node])
	if q.method == "etcdserverpb.KV.RangeStream" {
		got = r.join(q, node, got)
	}
	h := headerOf(got)
	if got.end == nil && h.GetRevision() < acked {
		if !req.GetSerializable() || req.GetRevision() > 0 {
			r.differ("read %s\nat node %d: at revision %d, and %d was acknowledged before it was asked", q, node, h.GetRevision(), acked)
			return
		}
		r.tolerate(olderReads())
		if h.GetRevision() < r.compacted {
			return
		}
	}
	if diff := r.asOf(q, got); diff != "" {
		r.differ("read %s\nat node %d, at revision %d, while others write: %s", q, node, h.GetRevision(), diff)
	}
	now := headerOf(r.call(ask("KV.Range", &pb.RangeRequest{Key: []byte("k"), CountOnly: true}), r.Direct))
	if h.GetRevision() > now.GetRevision() {
		r.differ("read %s\nat node %d: at revision %d, and etcd is at %d", q, node, h.GetRevision(), now.GetRevision())
	}
}
