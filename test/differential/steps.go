package differential

import (
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/protobuf/proto"
)

// leaseStep runs a step with leases.
func (r *run) leaseStep() {
	id := pick[int64](r, 0, -1, 12345)
	if len(r.leases) > 0 && r.IntN(5) > 0 {
		id = pick(r, r.leases...)
	}
	choose(
		r.dice,
		choice{3, func() {
			r.write(ask("Lease.LeaseGrant", &pb.LeaseGrantRequest{ID: 1 + int64(r.IntN(30)), TTL: 3600 + int64(r.IntN(1000))}))
		}},
		choice{1, func() { // TTLs that etcd refuses or raises: the lease must not expire during a comparison
			grant := &pb.LeaseGrantRequest{ID: pick[int64](r, 77, -5), TTL: pick[int64](r, 0, -1, 1, 9_000_000_001, 9_000_000_000)}
			if a := r.write(ask("Lease.LeaseGrant", grant)); a.end == nil {
				r.writeAs(ask("Lease.LeaseRevoke", &pb.LeaseRevokeRequest{ID: grant.ID}), 0)
			}
		}},
		choice{1, func() { r.write(ask("Lease.LeaseRevoke", &pb.LeaseRevokeRequest{ID: id})) }},
		choice{3, func() { r.write(ask("Lease.LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: id, Keys: oneIn(r, 2)})) }},
		choice{1, func() { r.write(ask("Lease.LeaseLeases", &pb.LeaseLeasesRequest{})) }},
		choice{2, func() {
			var sent []proto.Message
			for range r.IntN(4) {
				sent = append(sent, &pb.LeaseKeepAliveRequest{ID: id})
				if len(r.leases) > 0 {
					id = pick(r, r.leases...)
				}
			}
			r.write(ask("Lease.LeaseKeepAlive", sent...))
		}},
	)
}

// compactStep compacts. A lagging watch would then be a race at etcd.
func (r *run) compactStep() {
	r.settle()
	if err := r.Behind(r.ctx); err != nil {
		r.fatal = err
		return
	}
	r.writeAs(ask("KV.Compact", r.compaction()), 0)
	r.truth.forget(r.compacted)
}

// oddStep sends requests that no normal client sends.
func (r *run) oddStep() {
	choose(
		r.dice,
		choice{2, func() { // too large for a request or for gRPC
			value := []byte(strings.Repeat("x", pick(r, 3<<19-100, 3<<19, 3<<19+1000, 2<<20-30, 2<<20, 3<<20)))
			r.write(ask("KV.Put", &pb.PutRequest{Key: r.key(), Value: value}))
		}},
		choice{1, func() {
			r.read(ask("KV.Range", &pb.RangeRequest{Key: []byte(strings.Repeat("x", pick(r, 2<<20-100, 2<<20, 3<<20)))}))
		}},
		choice{4, func() {
			method := pick(r, "KV.Range", "KV.RangeStream", "KV.Put", "KV.Txn", "KV.Compact", "Lease.LeaseGrant", "Watch.Nothing", "Nobody.Nothing", "Cluster.MemberList")
			if method == "KV.RangeStream" {
				return // not a single message
			}
			r.garbage(method)
		}},
		choice{2, func() { r.write(ask("KV.Txn", &pb.TxnRequest{Success: []*pb.RequestOp{{}}})) }},
		choice{1, func() { r.write(ask("KV.Txn", &pb.TxnRequest{Compare: []*pb.Compare{{}}})) }},
		choice{1, func() { r.write(ask("KV.Txn", deep(pick(r, 3, 20, 126, 127, 128, 129)))) }},
		choice{1, func() { // fields of a later version
			m := &pb.RangeRequest{Key: r.key()}
			m.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01})
			r.read(ask("KV.Range", m))
		}},
	)
}

// deep returns n nested transactions.
func deep(n int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range n {
		r = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}}}
	}
	return r
}

// garbage sends invalid bytes; only the ends of the calls are compared.
func (r *run) garbage(method string) {
	q := question{method: "etcdserverpb." + method, raw: []byte{7}} // an invalid wire type
	for range r.IntN(12) {
		q.raw = append(q.raw, byte(r.IntN(256)))
	}
	r.report.Asked["garbage"]++
	node := r.IntN(len(r.Through))
	want, got := r.call(q, r.Direct), r.call(q, r.Through[node])
	if want.end == nil {
		r.fatal = fmt.Errorf("etcd understands %s", q)
	}
	if diff := difference(want, got, nil); diff != "" {
		r.differ("%s\nat node %d: %s", q, node, diff)
	}
}

// otherStep sends calls that nodes forward to etcd.
func (r *run) otherStep() {
	name := pick(r, "u1", "u2", "u3", "")
	key, end := r.keys()
	choose(
		r.dice,
		choice{1, func() { r.read(ask("Maintenance.Alarm", &pb.AlarmRequest{})) }},
		choice{1, func() { r.read(ask("Auth.AuthStatus", &pb.AuthStatusRequest{})) }},
		choice{1, func() { r.read(ask("Auth.UserList", &pb.AuthUserListRequest{})) }},
		choice{1, func() { r.read(ask("Auth.RoleList", &pb.AuthRoleListRequest{})) }},
		choice{1, func() { r.read(ask("Auth.UserGet", &pb.AuthUserGetRequest{Name: name})) }},
		choice{1, func() { r.read(ask("Auth.RoleGet", &pb.AuthRoleGetRequest{Role: name})) }},
		choice{1, func() { r.read(ask("Auth.Authenticate", &pb.AuthenticateRequest{Name: name, Password: "p"})) }},
		choice{2, func() {
			r.write(ask("Auth.UserAdd", &pb.AuthUserAddRequest{Name: name, Options: newUser()}))
		}},
		choice{1, func() { r.write(ask("Auth.UserDelete", &pb.AuthUserDeleteRequest{Name: name})) }},
		choice{2, func() { r.write(ask("Auth.RoleAdd", &pb.AuthRoleAddRequest{Name: name})) }},
		choice{1, func() { r.write(ask("Auth.RoleDelete", &pb.AuthRoleDeleteRequest{Role: name})) }},
		choice{1, func() { r.write(ask("Auth.UserGrantRole", &pb.AuthUserGrantRoleRequest{User: name, Role: "u1"})) }},
		choice{1, func() { r.write(ask("Auth.UserRevokeRole", &pb.AuthUserRevokeRoleRequest{Name: name, Role: "u1"})) }},
		choice{1, func() { r.write(ask("Auth.RoleGrantPermission", r.grant(name))) }},
		choice{1, func() {
			r.write(ask("Auth.RoleRevokePermission", &pb.AuthRoleRevokePermissionRequest{Role: name, Key: key, RangeEnd: end}))
		}},
		choice{1, func() {
			if r.Root == "" {
				r.write(ask("Auth.AuthDisable", &pb.AuthDisableRequest{}))
			}
		}},
	)
}

// lockStep uses etcd's lock and election services. There is no other client, so no call has to
// wait.
func (r *run) lockStep() {
	const lease = 99
	name := []byte(pick(r, "/a/lock", "/c/lock", "x", "y"))
	root := func(method string, m proto.Message) proto.Message {
		a := r.writeAs(question{method: method, sent: []proto.Message{m}}, 0)
		return a.first()
	}
	root("etcdserverpb.Lease.LeaseGrant", &pb.LeaseGrantRequest{ID: lease, TTL: 3600})
	switch r.IntN(3) {
	case 0:
		lock, _ := root("v3lockpb.Lock.Lock", &v3lockpb.LockRequest{Name: name, Lease: lease}).(*v3lockpb.LockResponse)
		root("v3lockpb.Lock.Unlock", &v3lockpb.UnlockRequest{Key: lock.GetKey()})
	case 1:
		won, _ := root("v3electionpb.Election.Campaign", &v3electionpb.CampaignRequest{Name: name, Lease: lease, Value: r.value()}).(*v3electionpb.CampaignResponse)
		root("v3electionpb.Election.Leader", &v3electionpb.LeaderRequest{Name: name})
		root("v3electionpb.Election.Proclaim", &v3electionpb.ProclaimRequest{Leader: won.GetLeader(), Value: r.value()})
		root("v3electionpb.Election.Resign", &v3electionpb.ResignRequest{Leader: won.GetLeader()})
	case 2:
		if oneIn(r, 4) { // all keys that begin with "/", with this name only: other names would wait
			name = nil
		}
		root("v3lockpb.Lock.Lock", &v3lockpb.LockRequest{Name: name, Lease: 98}) // the lease does not exist
		root("v3electionpb.Election.Leader", &v3electionpb.LeaderRequest{Name: name})
		root("v3electionpb.Election.Resign", &v3electionpb.ResignRequest{Leader: &v3electionpb.LeaderKey{Name: name, Key: r.key(), Rev: 5, Lease: lease}})
	}
	root("etcdserverpb.Lease.LeaseRevoke", &pb.LeaseRevokeRequest{ID: lease})
}

// bigStep writes revisions that need fragments, and watches from an earlier revision.
func (r *run) bigStep() {
	p, from := r.somePair(), r.revision
	before := r.watchOf(p, &pb.WatchCreateRequest{Key: []byte("/b/"), RangeEnd: []byte("/c"), PrevKv: true, Fragment: true})
	if before {
		r.await(p)
	}
	for i := range 5 {
		r.writeAs(ask("KV.Put", &pb.PutRequest{Key: fmt.Appendf(nil, "/b/big/%d", i), Value: []byte(strings.Repeat("b", 1<<20))}), 0)
	}
	r.writeAs(ask("KV.DeleteRange", &pb.DeleteRangeRequest{Key: []byte("/b/big/"), RangeEnd: []byte("/b/big0")}), 0)
	for _, fragment := range []bool{true, false} {
		r.watchOf(p, &pb.WatchCreateRequest{Key: []byte("/b/"), RangeEnd: []byte("/c"), PrevKv: true, Fragment: fragment, StartRevision: from + 1})
	}
	r.await(p)
	r.settle()
}
