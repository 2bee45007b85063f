package differential

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// draw makes random requests. It uses existing keys and revisions and live leases, so that many
// requests hit something.
type draw struct {
	dice
	revision, compacted int64
	leases              []int64
	// valid: only requests that etcd executes.
	valid bool
}

// prefixes returns the prefixes of most keys. Shards are cut at slashes, so that a range is in one
// shard or spans several.
func prefixes() []string {
	return []string{"/a/", "/b/", "/c/", "/d/", "/e/", "/f/", "/g/", "/h/"}
}

// firstKeys returns keys at which a shard map can be cut before the run begins.
func firstKeys() []string {
	var keys []string
	for _, p := range prefixes() {
		for i := range 8 {
			keys = append(keys, fmt.Sprintf("%s%d", p, i))
		}
	}
	return keys
}

// key returns a key, often one that other requests use.
func (d draw) key() []byte {
	switch n := d.IntN(200); {
	case n < 170:
		return fmt.Appendf(nil, "%s%d", pick(d, prefixes()...), d.IntN(8))
	case n < 180:
		return []byte(pick(d, "/a", "/b", "/a/1/x", "a", "z", "/", "/h/7\x00", "/h0"))
	case n < 190:
		return []byte(pick(d, "\x00", "\x00\x00", "\x01", "\xff", "\xff\xff", "\xff\xfe", "\x7f"))
	case n < 194:
		return []byte{byte(d.IntN(256)), byte(d.IntN(256))}
	case n < 196:
		return []byte("/e/" + strings.Repeat("long", 200))
	case n < 198 || d.valid:
		return []byte("/d/new/" + string(rune('a'+d.IntN(26))))
	}
	return nil
}

// keys returns the start and end of a range in the form of etcd's requests, of every kind.
func (d draw) keys() (key, end []byte) {
	switch n := d.IntN(100); {
	case n < 35:
		return d.key(), nil
	case n < 60: // a prefix within one shard
		p := []byte(pick(d, prefixes()...))
		return p, prefixEnd(p)
	case n < 65:
		p := []byte(pick(d, "/", "/a", "/a/1", "\x00", "/d/new/"))
		return p, prefixEnd(p)
	case n < 82: // from one key to another, often sorted
		key, end = d.key(), d.key()
		if string(key) > string(end) && len(end) > 0 {
			key, end = end, key
		}
		return key, end
	case n < 88:
		return d.key(), []byte{0}
	case n < 92:
		return []byte{0}, []byte{0}
	case n < 95: // as drawn: often empty or inverted
		return d.key(), d.key()
	case n < 97:
		key = d.key()
		return key, key
	case n < 98:
		return nil, []byte{0}
	}
	return d.key(), []byte("\xff\xff\xff")
}

// prefixEnd returns the end of the range of all keys with a prefix.
func prefixEnd(p []byte) []byte {
	end := append([]byte(nil), p...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0}
}

// value returns a value. There are few different values, so that sorting by value has ties.
func (d draw) value() []byte {
	switch n := d.IntN(40); {
	case n < 30:
		return fmt.Appendf(nil, "value %d", d.IntN(5))
	case n < 33:
		return nil
	case n < 36:
		return []byte{0, byte(d.IntN(256)), 0xff}
	case n < 39:
		return fmt.Appendf(nil, "%d %s", d.IntN(1000), strings.Repeat("v", d.IntN(1000)))
	}
	return []byte(strings.Repeat("V", 20_000+d.IntN(20_000)))
}

// at returns a revision to read or watch at.
func (d draw) at() int64 {
	switch n := d.IntN(40); {
	case n < 20:
		return 1 + int64(d.IntN(int(d.revision))) // often compacted
	case n < 26:
		return d.revision
	case n < 29:
		return d.revision - int64(d.IntN(10))
	case n < 33:
		return d.compacted + int64(d.IntN(3)) - 1
	case n < 35:
		return d.revision + 1
	case n < 37:
		return d.revision + 2 + int64(d.IntN(30))
	}
	return pick[int64](d, 0, 1, -1, math.MaxInt64, math.MinInt64)
}

// bound returns a bound on mod or create revisions; mostly zero.
func (d draw) bound() int64 {
	if d.IntN(5) > 0 {
		return 0
	}
	return d.at()
}

// rangeRequest returns a read with any combination of options.
func (d draw) rangeRequest() *pb.RangeRequest {
	r := &pb.RangeRequest{}
	r.Key, r.RangeEnd = d.keys()
	if oneIn(d, 3) {
		r.Revision = d.at()
	}
	if oneIn(d, 3) {
		r.Limit = pick[int64](d, 1, 2, 3, 5, 8, 10, 11, 20, 100, -1, math.MaxInt64, math.MaxInt64-1, math.MinInt64)
	}
	if oneIn(d, 3) {
		r.SortOrder = pb.RangeRequest_SortOrder(d.IntN(3))
		r.SortTarget = pb.RangeRequest_SortTarget(d.IntN(5))
	}
	if oneIn(d, 60) && !d.valid {
		r.SortOrder = pick[pb.RangeRequest_SortOrder](d, 3, -1, 0)
		r.SortTarget = pick[pb.RangeRequest_SortTarget](d, 5, -1, math.MaxInt32)
	}
	r.Serializable = oneIn(d, 3)
	r.KeysOnly, r.CountOnly = oneIn(d, 4), oneIn(d, 6)
	if oneIn(d, 4) {
		r.MinModRevision, r.MaxModRevision = d.bound(), d.bound()
		r.MinCreateRevision, r.MaxCreateRevision = d.bound(), d.bound()
	}
	return r
}

// lease returns a lease to attach to a key; mostly none.
func (d draw) lease() int64 {
	switch n := d.IntN(20); {
	case n < 15:
		return 0
	case n < 19 && len(d.leases) > 0:
		return pick(d, d.leases...)
	case n < 19 || d.valid:
		return 0
	}
	return pick[int64](d, 12345, -1, math.MaxInt64)
}

func (d draw) put() *pb.PutRequest {
	r := &pb.PutRequest{Key: d.key(), Value: d.value(), Lease: d.lease(), PrevKv: oneIn(d, 3)}
	if oneIn(d, 8) {
		r.IgnoreValue = true
		if d.valid || d.IntN(4) > 0 {
			r.Value = nil
		}
	}
	if oneIn(d, 8) {
		r.IgnoreLease = true
		if d.valid || d.IntN(4) > 0 {
			r.Lease = 0
		}
	}
	return r
}

func (d draw) deleteRange() *pb.DeleteRangeRequest {
	r := &pb.DeleteRangeRequest{Key: d.key(), PrevKv: oneIn(d, 2)}
	if oneIn(d, 4) {
		r.Key, r.RangeEnd = d.keys()
	}
	return r
}

// compare returns a condition, on every target.
func (d draw) compare() *pb.Compare {
	c := &pb.Compare{Key: d.key(), Result: pb.Compare_CompareResult(d.IntN(4))}
	if oneIn(d, 5) {
		c.Key, c.RangeEnd = d.keys()
	}
	number := func() int64 { return pick(d, 0, 1, 2, d.revision, d.at()) }
	switch d.IntN(5) {
	case 0:
		c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: number()}
	case 1:
		c.Target, c.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: number()}
	case 2:
		c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: number()}
	case 3:
		c.Target, c.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: d.value()}
	case 4:
		c.Target, c.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{Lease: d.lease()}
	}
	if oneIn(d, 50) && !d.valid {
		c.Target = pick[pb.Compare_CompareTarget](d, 0, 1, 2, 3, 4, 5, -1) // not the field of the union
		c.Result = pick[pb.Compare_CompareResult](d, 3, 4, -1)
		if oneIn(d, 2) {
			c.TargetUnion = nil
		}
	}
	return c
}

// txn returns a transaction, nested up to the given depth.
func (d draw) txn(depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range d.IntN(3) {
		r.Compare = append(r.Compare, d.compare())
	}
	r.Success, r.Failure = d.ops(depth), d.ops(depth)
	if puts(r) {
		closeDeletes(r)
	}
	return r
}

// puts reports whether a transaction contains a put.
func puts(r *pb.TxnRequest) bool {
	return slices.ContainsFunc(slices.Concat(r.GetSuccess(), r.GetFailure()), func(o *pb.RequestOp) bool {
		return o.GetRequestPut() != nil || o.GetRequestTxn() != nil && puts(o.GetRequestTxn())
	})
}

// closeDeletes adds an end to the deletes without an end in a transaction. etcd does not notice
// that they delete the transaction's puts, and crashes: at once if the put keeps a part of the key,
// otherwise at the first read after a compaction at that revision. (For the first, see
// docs/etcd-compatibility.md.)
func closeDeletes(r *pb.TxnRequest) {
	for _, o := range slices.Concat(r.GetSuccess(), r.GetFailure()) {
		if d := o.GetRequestDeleteRange(); string(d.GetRangeEnd()) == "\x00" {
			d.RangeEnd = []byte("\xff\xff\xff")
		}
		if t := o.GetRequestTxn(); t != nil {
			closeDeletes(t)
		}
	}
}

func (d draw) ops(depth int) (ops []*pb.RequestOp) {
	n := d.IntN(5)
	if oneIn(d, 40) {
		n = pick(d, 30, 127, 128, 129)
	}
	readOnly := oneIn(d, 5)
	for i := range n {
		op := &pb.RequestOp{}
		switch k := d.IntN(100); {
		case readOnly, k < 25:
			r := d.rangeRequest()
			if n > 10 {
				r.Limit = 1
			}
			op.Request = &pb.RequestOp_RequestRange{RequestRange: r}
		case k < 70:
			r := d.put()
			if n > 10 { // with fewer keys, two of them are equal
				r.Key = fmt.Appendf(nil, "%smany/%d", pick(d, prefixes()...), i)
			}
			op.Request = &pb.RequestOp_RequestPut{RequestPut: r}
		case k < 88:
			op.Request = &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: d.deleteRange()}
		case k < 98 && depth > 0 && n <= 10:
			op.Request = &pb.RequestOp_RequestTxn{RequestTxn: d.txn(depth - 1)}
		case k < 99 || d.valid:
			op.Request = &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: d.key()}}
		}
		ops = append(ops, op)
	}
	return ops
}

// compaction returns a compaction around the interesting revisions.
func (d draw) compaction() *pb.CompactionRequest {
	r := &pb.CompactionRequest{Physical: oneIn(d, 2)}
	switch n := d.IntN(20); {
	case n < 10: // usually keep some history to read
		r.Revision = d.compacted + (d.revision-d.compacted)*int64(d.IntN(10))/10
	case n < 13:
		r.Revision = d.revision + int64(d.IntN(3)) - 1
	case n < 16:
		r.Revision = d.compacted + int64(d.IntN(3)) - 1
	default:
		r.Revision = d.at()
	}
	return r
}

// watch returns a request for a random watch. ids are the IDs in use.
func (d draw) watch(ids []int64) *pb.WatchCreateRequest {
	r := &pb.WatchCreateRequest{}
	r.Key, r.RangeEnd = d.keys()
	if oneIn(d, 2) {
		r.StartRevision = d.at()
	}
	r.PrevKv, r.Fragment, r.ProgressNotify = oneIn(d, 2), oneIn(d, 3), oneIn(d, 4)
	if oneIn(d, 5) {
		for range d.IntN(4) {
			r.Filters = append(r.Filters, pick[pb.WatchCreateRequest_FilterType](d, 0, 1, 0, 1, 0, 1, 7, -1))
		}
	}
	if oneIn(d, 4) {
		r.WatchId = pick(d, append([]int64{0, 1, 2, 5, 100, -2, -3, math.MaxInt64, math.MinInt64}, ids...)...)
	}
	return r
}

// grant returns a permission for a role.
func (d draw) grant(role string) *pb.AuthRoleGrantPermissionRequest {
	p := &authpb.Permission{PermType: authpb.Permission_Type(d.IntN(3))}
	p.Key, p.RangeEnd = d.keys()
	if oneIn(d, 3) {
		p.PermType = authpb.Permission_READWRITE
		from := d.IntN(len(prefixes()))
		p.Key, p.RangeEnd = []byte(prefixes()[from]), []byte(pick(d, append(prefixes()[from:], "/h/\x00", "0")[1:]...))
	}
	return &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: p}
}
