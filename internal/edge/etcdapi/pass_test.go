package etcdapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// passedOn returns the services whose calls are forwarded to etcd, and their methods that are not.
func passedOn() (services []*grpc.ServiceDesc, but []string) {
	services = []*grpc.ServiceDesc{
		&etcdserverpb.KV_ServiceDesc, &etcdserverpb.Lease_ServiceDesc, &etcdserverpb.Auth_ServiceDesc,
		&etcdserverpb.Maintenance_ServiceDesc, &v3lockpb.Lock_ServiceDesc, &v3electionpb.Election_ServiceDesc,
	}
	but = []string{
		etcdserverpb.KV_Range_FullMethodName, etcdserverpb.KV_RangeStream_FullMethodName,
		etcdserverpb.Maintenance_Defragment_FullMethodName, etcdserverpb.Maintenance_Hash_FullMethodName,
		etcdserverpb.Maintenance_HashKV_FullMethodName, etcdserverpb.Maintenance_Snapshot_FullMethodName,
		etcdserverpb.Maintenance_MoveLeader_FullMethodName, etcdserverpb.Maintenance_Downgrade_FullMethodName,
	}
	return services, but
}

// call is one request, with the token of its caller.
type call struct {
	method  string
	request proto.Message
	answer  proto.Message
	as      string // the name in tokens; "": no user
}

// of returns a call, from the name of a method and its messages.
func of[Answer any, P interface {
	*Answer
	proto.Message
}](method string, request proto.Message) call {
	return call{method: method, request: request, answer: P(new(Answer))}
}

func (c call) by(user string) call { c.as = user; return c }

// outcome is the result of a call as text, without random values and the answering
// member.
func outcome(m proto.Message, err error) string {
	if s, _ := status.FromError(err); err != nil {
		// protobuf's errors have different kinds of spaces in different programs.
		return fmt.Sprintf("%v %q %v", s.Code(), strings.ReplaceAll(s.Message(), "\u00a0", " "), s.Details())
	}
	m = proto.Clone(m)
	if r, ok := m.(*etcdserverpb.LeaseTimeToLiveResponse); ok && r.GetTTL() > 0 {
		r.TTL = 1 // the remaining time differs
	}
	forget(m.ProtoReflect())
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%v %x", m, b)
}

// forget clears the fields that differ between any two etcds.
func forget(m protoreflect.Message) {
	unlike := []protoreflect.Name{"member_id", "cluster_id", "raft_term", "token", "leader", "raftIndex", "raftTerm", "raftAppliedIndex", "dbSize", "dbSizeInUse", "storageVersion"}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case slices.Contains(unlike, f.Name()) && f.Message() == nil:
			m.Clear(f)
		case f.Message() != nil && !f.IsList() && !f.IsMap():
			forget(v.Message())
		}
		return true
	})
}

// Every forwarded call has the same result as at etcd: answers field by field, and errors by code,
// text and details.
func TestForwardedCallsEqualEtcds(t *testing.T) {
	direct, behind := etcdtest.StartProcess(t), etcdtest.StartProcess(t)
	conns := []*grpc.ClientConn{dialPlain(t, direct.Endpoint()), startPass(t, behind.Endpoint()).conn}
	tokens := make([]map[string]string, len(conns))
	for i := range tokens {
		tokens[i] = map[string]string{"bogus": "bogus.1"}
	}
	called := make(map[string]bool)
	for _, c := range script() {
		called[c.method] = true
		var got []string
		for i, conn := range conns {
			ctx := within(t)
			if c.as != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, tokens[i][c.as])
			}
			answer := proto.Clone(c.answer)
			err := conn.Invoke(ctx, c.method, c.request, answer)
			got = append(got, outcome(answer, err))
			if login, ok := c.request.(*etcdserverpb.AuthenticateRequest); ok && err == nil {
				tokens[i][login.GetName()] = answer.(*etcdserverpb.AuthenticateResponse).GetToken()
			}
		}
		if got[0] != got[1] {
			t.Errorf("%s %v\netcd:    %s\nthrough: %s", c.method, c.request, got[0], got[1])
		}
	}
	services, but := passedOn()
	for _, s := range services {
		for _, m := range s.Methods {
			if name := "/" + s.ServiceName + "/" + m.MethodName; !called[name] && !slices.Contains(but, name) {
				t.Errorf("%s is not in the script", name)
			}
		}
	}
}

// script returns a sequence with every unary call, most of them also with a failure.
func script() []call {
	put := func(r *etcdserverpb.PutRequest) call {
		return of[etcdserverpb.PutResponse](etcdserverpb.KV_Put_FullMethodName, r)
	}
	del := func(r *etcdserverpb.DeleteRangeRequest) call {
		return of[etcdserverpb.DeleteRangeResponse](etcdserverpb.KV_DeleteRange_FullMethodName, r)
	}
	txn := func(r *etcdserverpb.TxnRequest) call {
		return of[etcdserverpb.TxnResponse](etcdserverpb.KV_Txn_FullMethodName, r)
	}
	compact := func(revision int64) call {
		return of[etcdserverpb.CompactionResponse](etcdserverpb.KV_Compact_FullMethodName, &etcdserverpb.CompactionRequest{Revision: revision, Physical: true})
	}
	grant := func(id, ttl int64) call {
		return of[etcdserverpb.LeaseGrantResponse](etcdserverpb.Lease_LeaseGrant_FullMethodName, &etcdserverpb.LeaseGrantRequest{ID: id, TTL: ttl})
	}
	ttl := func(id int64) call {
		return of[etcdserverpb.LeaseTimeToLiveResponse](etcdserverpb.Lease_LeaseTimeToLive_FullMethodName, &etcdserverpb.LeaseTimeToLiveRequest{ID: id, Keys: true})
	}
	revoke := func(id int64) call {
		return of[etcdserverpb.LeaseRevokeResponse](etcdserverpb.Lease_LeaseRevoke_FullMethodName, &etcdserverpb.LeaseRevokeRequest{ID: id})
	}
	leases := of[etcdserverpb.LeaseLeasesResponse](etcdserverpb.Lease_LeaseLeases_FullMethodName, &etcdserverpb.LeaseLeasesRequest{})
	statusOf := of[etcdserverpb.StatusResponse](etcdserverpb.Maintenance_Status_FullMethodName, &etcdserverpb.StatusRequest{})
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) call {
		return of[etcdserverpb.AlarmResponse](etcdserverpb.Maintenance_Alarm_FullMethodName, &etcdserverpb.AlarmRequest{Action: action, Alarm: etcdserverpb.AlarmType_NOSPACE})
	}
	login := func(user, password string) call {
		return of[etcdserverpb.AuthenticateResponse](etcdserverpb.Auth_Authenticate_FullMethodName, &etcdserverpb.AuthenticateRequest{Name: user, Password: password})
	}
	a, b := []byte("a"), []byte("b")
	opPut := func(r *etcdserverpb.PutRequest) *etcdserverpb.RequestOp {
		return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: r}}
	}
	lock := func(lease int64) call {
		return of[v3lockpb.LockResponse](v3lockpb.Lock_Lock_FullMethodName, &v3lockpb.LockRequest{Name: []byte("l"), Lease: lease})
	}
	leader := &v3electionpb.LeaderKey{Name: []byte("e"), Key: []byte("e/7"), Lease: 7}
	out := []call{
		put(&etcdserverpb.PutRequest{Key: a, Value: []byte("1")}),
		put(&etcdserverpb.PutRequest{Key: a, Value: []byte("2"), PrevKv: true}),
		put(&etcdserverpb.PutRequest{}),
		put(&etcdserverpb.PutRequest{Key: a, Lease: 99}),
		put(&etcdserverpb.PutRequest{Key: a, Value: a, IgnoreValue: true}),
		put(&etcdserverpb.PutRequest{Key: a, IgnoreValue: true, PrevKv: true}),
		put(&etcdserverpb.PutRequest{Key: []byte("none"), IgnoreLease: true}),
		put(&etcdserverpb.PutRequest{Key: a, Value: bytes.Repeat(a, 1600<<10)}), // too large for etcd
		put(&etcdserverpb.PutRequest{Key: a, Value: bytes.Repeat(a, 3<<20)}),    // too large for gRPC
		txn(&etcdserverpb.TxnRequest{
			Compare: []*etcdserverpb.Compare{{Key: a, Target: etcdserverpb.Compare_VERSION, Result: etcdserverpb.Compare_GREATER, TargetUnion: &etcdserverpb.Compare_Version{Version: 1}}},
			Success: []*etcdserverpb.RequestOp{
				opPut(&etcdserverpb.PutRequest{Key: b, Value: a, PrevKv: true}),
				{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: &etcdserverpb.RangeRequest{Key: a, RangeEnd: []byte("z")}}},
			},
		}),
		txn(&etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{opPut(&etcdserverpb.PutRequest{Key: a}), opPut(&etcdserverpb.PutRequest{Key: a})}}),
		txn(&etcdserverpb.TxnRequest{Success: slices.Repeat([]*etcdserverpb.RequestOp{opPut(&etcdserverpb.PutRequest{Key: a})}, 129)}),
		txn(&etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{{}}}),
		txn(&etcdserverpb.TxnRequest{}),
		del(&etcdserverpb.DeleteRangeRequest{Key: a, RangeEnd: []byte("c"), PrevKv: true}),
		del(&etcdserverpb.DeleteRangeRequest{Key: a, RangeEnd: []byte{0}}),
		del(&etcdserverpb.DeleteRangeRequest{}),
		compact(3), compact(3), compact(1000), compact(0),

		grant(7, 1000), grant(7, 1000), grant(8, 1<<40), ttl(7), ttl(9),
		put(&etcdserverpb.PutRequest{Key: a, Lease: 7}), ttl(7), leases,
		lock(7),
		of[v3lockpb.UnlockResponse](v3lockpb.Lock_Unlock_FullMethodName, &v3lockpb.UnlockRequest{Key: []byte("l/7")}),
		lock(404),
		of[v3electionpb.CampaignResponse](v3electionpb.Election_Campaign_FullMethodName, &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: 7, Value: a}),
		of[v3electionpb.LeaderResponse](v3electionpb.Election_Leader_FullMethodName, &v3electionpb.LeaderRequest{Name: []byte("e")}),
		of[v3electionpb.LeaderResponse](v3electionpb.Election_Leader_FullMethodName, &v3electionpb.LeaderRequest{Name: []byte("nobody")}),
		of[v3electionpb.ProclaimResponse](v3electionpb.Election_Proclaim_FullMethodName, &v3electionpb.ProclaimRequest{}),
		of[v3electionpb.ProclaimResponse](v3electionpb.Election_Proclaim_FullMethodName, &v3electionpb.ProclaimRequest{Leader: leader, Value: b}),
		of[v3electionpb.ResignResponse](v3electionpb.Election_Resign_FullMethodName, &v3electionpb.ResignRequest{Leader: leader}),
		revoke(7), revoke(7),

		statusOf,
		alarm(etcdserverpb.AlarmRequest_GET), alarm(etcdserverpb.AlarmRequest_ACTIVATE), alarm(etcdserverpb.AlarmRequest_GET), statusOf,
		put(&etcdserverpb.PutRequest{Key: a}), // no space
		alarm(etcdserverpb.AlarmRequest_DEACTIVATE),
	}
	auth := func(method string, request, answer proto.Message) call {
		return call{method: "/etcdserverpb.Auth/" + method, request: request, answer: answer}
	}
	read := &etcdserverpb.AuthRoleGrantPermissionRequest{Name: "r", Perm: &authpb.Permission{PermType: authpb.READ, Key: a}}
	return append(out,
		login("root", "secret"),
		auth("AuthEnable", &etcdserverpb.AuthEnableRequest{}, &etcdserverpb.AuthEnableResponse{}),
		auth("UserAdd", &etcdserverpb.AuthUserAddRequest{Name: "root", Password: "secret"}, &etcdserverpb.AuthUserAddResponse{}),
		auth("UserAdd", &etcdserverpb.AuthUserAddRequest{Name: "u", Password: "pw"}, &etcdserverpb.AuthUserAddResponse{}),
		auth("UserAdd", &etcdserverpb.AuthUserAddRequest{Name: "u", Password: "pw"}, &etcdserverpb.AuthUserAddResponse{}),
		auth("RoleAdd", &etcdserverpb.AuthRoleAddRequest{Name: "root"}, &etcdserverpb.AuthRoleAddResponse{}),
		auth("RoleAdd", &etcdserverpb.AuthRoleAddRequest{Name: "r"}, &etcdserverpb.AuthRoleAddResponse{}),
		auth("RoleGrantPermission", read, &etcdserverpb.AuthRoleGrantPermissionResponse{}),
		auth("UserGrantRole", &etcdserverpb.AuthUserGrantRoleRequest{User: "root", Role: "root"}, &etcdserverpb.AuthUserGrantRoleResponse{}),
		auth("UserGrantRole", &etcdserverpb.AuthUserGrantRoleRequest{User: "u", Role: "r"}, &etcdserverpb.AuthUserGrantRoleResponse{}),
		auth("AuthEnable", &etcdserverpb.AuthEnableRequest{}, &etcdserverpb.AuthEnableResponse{}),
		login("root", "wrong"), login("root", "secret"), login("u", "pw"),
		auth("AuthStatus", &etcdserverpb.AuthStatusRequest{}, &etcdserverpb.AuthStatusResponse{}),
		auth("AuthStatus", &etcdserverpb.AuthStatusRequest{}, &etcdserverpb.AuthStatusResponse{}).by("root"),
		put(&etcdserverpb.PutRequest{Key: a}),
		put(&etcdserverpb.PutRequest{Key: a}).by("bogus"),
		put(&etcdserverpb.PutRequest{Key: a}).by("u"),
		put(&etcdserverpb.PutRequest{Key: a}).by("root"),
		compact(5).by("u"), grant(11, 100), grant(11, 100).by("u"), ttl(11).by("u"), leases.by("u"), statusOf, statusOf.by("u"),
		auth("UserList", &etcdserverpb.AuthUserListRequest{}, &etcdserverpb.AuthUserListResponse{}).by("u"),
		auth("UserList", &etcdserverpb.AuthUserListRequest{}, &etcdserverpb.AuthUserListResponse{}).by("root"),
		auth("UserGet", &etcdserverpb.AuthUserGetRequest{Name: "u"}, &etcdserverpb.AuthUserGetResponse{}).by("u"),
		auth("RoleList", &etcdserverpb.AuthRoleListRequest{}, &etcdserverpb.AuthRoleListResponse{}).by("root"),
		auth("RoleGet", &etcdserverpb.AuthRoleGetRequest{Role: "r"}, &etcdserverpb.AuthRoleGetResponse{}).by("root"),
		auth("RoleRevokePermission", &etcdserverpb.AuthRoleRevokePermissionRequest{Role: "r", Key: a}, &etcdserverpb.AuthRoleRevokePermissionResponse{}).by("root"),
		auth("UserChangePassword", &etcdserverpb.AuthUserChangePasswordRequest{Name: "u", Password: "new"}, &etcdserverpb.AuthUserChangePasswordResponse{}).by("root"),
		login("root", "secret"), // the change has invalidated the old token
		auth("UserRevokeRole", &etcdserverpb.AuthUserRevokeRoleRequest{Name: "u", Role: "r"}, &etcdserverpb.AuthUserRevokeRoleResponse{}).by("root"),
		login("root", "secret"),
		auth("UserDelete", &etcdserverpb.AuthUserDeleteRequest{Name: "u"}, &etcdserverpb.AuthUserDeleteResponse{}).by("root"),
		login("root", "secret"),
		auth("RoleDelete", &etcdserverpb.AuthRoleDeleteRequest{Role: "r"}, &etcdserverpb.AuthRoleDeleteResponse{}).by("root"),
		login("root", "secret"),
		auth("AuthDisable", &etcdserverpb.AuthDisableRequest{}, &etcdserverpb.AuthDisableResponse{}).by("root"),
	)
}

// keepAlive opens a keepalive stream.
func keepAlive(t *testing.T, conn *grpc.ClientConn) (etcdserverpb.Lease_LeaseKeepAliveClient, context.CancelFunc) {
	t.Helper()
	// A test may fill all windows with small messages, and read them later.
	ctx, cancel := context.WithTimeout(t.Context(), 5*deadline)
	s, err := etcdserverpb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s, cancel
}

// A keepalive stream works in both directions, and ends when either the client or etcd ends it. A
// lease without keepalives expires.
func TestKeepAlive(t *testing.T) {
	s := etcdtest.Start(t)
	conn := startPass(t, s.Endpoint()).conn
	lease := etcdserverpb.NewLeaseClient(conn)
	if _, err := lease.LeaseGrant(within(t), &etcdserverpb.LeaseGrantRequest{ID: 5, TTL: 100}); err != nil {
		t.Fatal(err)
	}
	stream, _ := keepAlive(t, conn)
	for _, c := range []struct{ id, ttl int64 }{{5, 100}, {6, 0}, {5, 100}} {
		if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: c.id}); err != nil {
			t.Fatal(err)
		}
		if r, err := stream.Recv(); err != nil || r.GetID() != c.id || r.GetTTL() != c.ttl || r.GetHeader().GetClusterId() == 0 {
			t.Errorf("%v, %v; want lease %d for %d s", r, err, c.id, c.ttl)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if r, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the client has closed its side: %v, %v", r, err)
	}

	if _, err := lease.LeaseGrant(within(t), &etcdserverpb.LeaseGrantRequest{ID: 6, TTL: 1}); err != nil {
		t.Fatal(err)
	}
	kv := etcdserverpb.NewKVClient(conn)
	if _, err := kv.Put(within(t), &etcdserverpb.PutRequest{Key: []byte("/gone"), Lease: 6}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the lease expires", func() bool {
		r, err := lease.LeaseTimeToLive(within(t), &etcdserverpb.LeaseTimeToLiveRequest{ID: 6})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetTTL() == -1
	})
	if r, err := s.Client().Get(within(t), "/gone"); err != nil || r.Count != 0 {
		t.Errorf("%v, %v", r, err)
	}

	withRoot(t, conn)
	stream, _ = keepAlive(t, conn)
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: 5}); err != nil {
		t.Fatal(err)
	}
	direct, _ := keepAlive(t, dialPlain(t, s.Endpoint()))
	if err := direct.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: 5}); err != nil {
		t.Fatal(err)
	}
	_, want := direct.Recv()
	if _, err := stream.Recv(); outcome(nil, err) != outcome(nil, want) {
		t.Errorf("etcd returns %v, the node another error: %v", want, err)
	}

	open, _ := keepAlive(t, conn)
	s.Stop()
	if _, err := open.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("after etcd has stopped: %v", err)
	}
}

// withRoot turns etcd's authentication on.
func withRoot(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	auth := etcdserverpb.NewAuthClient(conn)
	var errs []error
	must := func(_ any, err error) { errs = append(errs, err) }
	must(auth.UserAdd(within(t), &etcdserverpb.AuthUserAddRequest{Name: "root", Password: "secret"}))
	must(auth.RoleAdd(within(t), &etcdserverpb.AuthRoleAddRequest{Name: "root"}))
	must(auth.UserGrantRole(within(t), &etcdserverpb.AuthUserGrantRoleRequest{User: "root", Role: "root"}))
	must(auth.AuthEnable(within(t), &etcdserverpb.AuthEnableRequest{}))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// The node stops reading a client that sends requests and does not read the answers. Such a client
// costs a bounded number of bytes, and continues when it reads again.
func TestKeepAliveThatIsNotRead(t *testing.T) {
	if testing.Short() {
		t.Skip("fills the windows of three connections with small messages")
	}
	s := etcdtest.Start(t)
	rig := startPass(t, s.Endpoint())
	const many = 1_000_000
	stream, cancel := keepAlive(t, rig.conn)
	defer cancel()
	var sent atomic.Int64
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := range int64(many) {
			if stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: 1 + i}) != nil {
				return
			}
			sent.Store(i + 1)
		}
	})
	defer sender.Wait()
	defer cancel()
	var last int64
	same := 0
	testkit.Eventually(t, "flow control stops the client", func() bool {
		if now := sent.Load(); now != last {
			last, same = now, 0
		} else {
			same++
		}
		return same == 100
	})
	if last > many/2 {
		t.Errorf("%d requests were accepted from a client that reads no answers", last)
	}
	t.Logf("%d requests were accepted", last)
	// The client does not delay other clients.
	if _, err := etcdserverpb.NewLeaseClient(rig.conn).LeaseGrant(within(t), &etcdserverpb.LeaseGrantRequest{TTL: 5}); err != nil {
		t.Error(err)
	}
	for id := range last + 1000 {
		if r, err := stream.Recv(); err != nil || r.GetID() != id+1 {
			t.Fatalf("%v, %v; want lease %d", r, err, id+1)
		}
	}
}

// When a client that waits for a lock or an election disconnects, its wait at etcd ends, too: the
// queue of waiters is kept only by etcd.
func TestWaitsEndWithTheirClient(t *testing.T) {
	s := etcdtest.StartProcess(t) // the embedded etcd does not remove its locks
	rig := startPass(t, s.Endpoint())
	lease := etcdserverpb.NewLeaseClient(rig.conn)
	for id := range int64(3) {
		if _, err := lease.LeaseGrant(within(t), &etcdserverpb.LeaseGrantRequest{ID: id + 1, TTL: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	waiters := func(prefix string) int64 {
		r, err := etcdserverpb.NewKVClient(rig.up.ProxyConn()).Range(within(t), &etcdserverpb.RangeRequest{
			Key: []byte(prefix), RangeEnd: []byte(prefix + "\xff"), CountOnly: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetCount()
	}
	lock := func(ctx context.Context, conn *grpc.ClientConn, lease int64) error {
		_, err := v3lockpb.NewLockClient(conn).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("lock"), Lease: lease})
		return err
	}
	campaign := func(ctx context.Context, conn *grpc.ClientConn, lease int64) error {
		_, err := v3electionpb.NewElectionClient(conn).Campaign(ctx, &v3electionpb.CampaignRequest{Name: []byte("vote"), Lease: lease, Value: []byte("x")})
		return err
	}
	for prefix, wait := range map[string]func(context.Context, *grpc.ClientConn, int64) error{"lock/": lock, "vote/": campaign} {
		if err := wait(within(t), rig.conn, 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(within(t))
		gone := dialPlain(t, rig.addr)
		var both sync.WaitGroup
		both.Go(func() {
			if err := wait(ctx, rig.conn, 2); status.Code(err) != codes.Canceled {
				t.Errorf("%s: after the cancel: %v", prefix, err)
			}
		})
		both.Go(func() {
			if err := wait(within(t), gone, 3); err == nil {
				t.Errorf("%s: acquired on a closed connection", prefix)
			}
		})
		testkit.Eventually(t, prefix+": both wait", func() bool { return waiters(prefix) == 3 })
		cancel()
		testkit.Eventually(t, prefix+": one waits no more", func() bool { return waiters(prefix) == 2 })
		gone.Close()
		testkit.Eventually(t, prefix+": nobody waits", func() bool { return waiters(prefix) == 1 })
		both.Wait()
	}

	watchers := func() int {
		m, err := etcdtest.Scrape(t.Context(), s.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		return m.Watchers()
	}
	before := watchers()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	observed, err := v3electionpb.NewElectionClient(rig.conn).Observe(ctx, &v3electionpb.LeaderRequest{Name: []byte("vote")})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := observed.Recv(); err != nil || string(r.GetKv().GetValue()) != "x" {
		t.Errorf("%v, %v", r, err)
	}
	testkit.Eventually(t, "the observer is at etcd", func() bool { return watchers() > before })
	cancel()
	testkit.Eventually(t, "the observer is gone", func() bool { return watchers() <= before })
	if _, err := observed.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
}

// The node learns the token of a user before the user gets it. A failed login adds no token.
func TestLearnTokens(t *testing.T) {
	s := etcdtest.Start(t)
	learnt := make(chan string, 1)
	conn := startPass(t, s.Endpoint(), func(c *etcdapi.Config) {
		c.Learn = func(_ context.Context, user, token string) { learnt <- user + " " + token }
	}).conn
	withRoot(t, conn)
	auth := etcdserverpb.NewAuthClient(conn)
	if _, err := auth.Authenticate(within(t), &etcdserverpb.AuthenticateRequest{Name: "root", Password: "wrong"}); !errors.Is(rpctypes.Error(err), rpctypes.ErrAuthFailed) {
		t.Errorf("got %v", err)
	}
	r, err := auth.Authenticate(within(t), &etcdserverpb.AuthenticateRequest{Name: "root", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-learnt:
		if got != "root "+r.GetToken() || r.GetToken() == "" {
			t.Errorf("learnt %q, the token is %q", got, r.GetToken())
		}
	default:
		t.Error("learnt nothing")
	}
	for _, spelling := range []string{rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger} {
		ctx := metadata.AppendToOutgoingContext(within(t), spelling, r.GetToken())
		if _, err := etcdserverpb.NewKVClient(conn).Put(ctx, &etcdserverpb.PutRequest{Key: []byte("a")}); err != nil {
			t.Errorf("%s: %v", spelling, err)
		}
	}
}

// echo is an etcd that returns each request as its answer.
func echo(t *testing.T) etcd.Config {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	g := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		for {
			m := new(wire.Encoded)
			if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	}))
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-ended })
	cfg := etcd.Defaults()
	cfg.Endpoints, cfg.Logger = []string{"echo:1"}, slog.New(slog.DiscardHandler)
	cfg.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	return cfg
}

// Unknown fields and messages are forwarded unchanged in both directions.
func TestUnknownFieldsSurvive(t *testing.T) {
	conn := startPassOf(t, echo(t)).conn
	known, err := proto.Marshal(&etcdserverpb.TxnRequest{Success: ops{}.put(&etcdserverpb.PutRequest{Key: []byte("a"), Value: bytes.Repeat([]byte("v"), 100_000)})})
	if err != nil {
		t.Fatal(err)
	}
	unknown := protowire.AppendString(protowire.AppendTag(known, 12345, protowire.BytesType), "from the future")
	wrong := []byte{0xff, 0xff, 0xff} // not a proto: etcd refuses it, except for transactions
	send := func(b []byte) *wire.Encoded { return &wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(b)}} }
	for _, b := range [][]byte{unknown, wrong, nil} {
		for _, method := range []string{etcdserverpb.KV_Put_FullMethodName, etcdserverpb.KV_Txn_FullMethodName, etcdserverpb.Auth_Authenticate_FullMethodName} {
			if method == etcdserverpb.KV_Txn_FullMethodName && bytes.Equal(b, wrong) {
				continue
			}
			got := new(wire.Encoded)
			if err := conn.Invoke(within(t), method, send(b), got, grpc.ForceCodecV2(newCodec())); err != nil || !bytes.Equal(got.Buffers.Materialize(), b) {
				t.Errorf("%s: %d bytes came back as %d, %v", method, len(b), got.Buffers.Len(), err)
			}
		}
		s, err := conn.NewStream(within(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, etcdserverpb.Lease_LeaseKeepAlive_FullMethodName, grpc.ForceCodecV2(newCodec()))
		if err != nil {
			t.Fatal(err)
		}
		got := new(wire.Encoded)
		if err := errors.Join(s.SendMsg(send(b)), s.RecvMsg(got)); err != nil || !bytes.Equal(got.Buffers.Materialize(), b) {
			t.Errorf("stream: %d bytes came back as %d, %v", len(b), got.Buffers.Len(), err)
		}
		if err := errors.Join(s.CloseSend(), s.RecvMsg(got)); !errors.Is(err, io.EOF) {
			t.Errorf("stream: %v", err)
		}
	}
}

// A message that is larger than the limit ends its stream, with the reason.
func TestStreamRefusesLargeMessages(t *testing.T) {
	conn := startPassOf(t, echo(t)).conn
	s, err := conn.NewStream(within(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, etcdserverpb.Lease_LeaseKeepAlive_FullMethodName, grpc.ForceCodecV2(newCodec()))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(&wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(make([]byte, 3<<20))}}); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(new(wire.Encoded)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}

// The error of a method that is not offered names the alternative.
func TestRefused(t *testing.T) {
	conn := startPassOf(t, echo(t)).conn // answers every forwarded call
	refused := 0
	for _, service := range []*grpc.ServiceDesc{&etcdserverpb.Maintenance_ServiceDesc, &etcdserverpb.Cluster_ServiceDesc} {
		check := func(name string, do func(name string) error) {
			if slices.Contains([]string{"Status", "Alarm", "MemberList"}, name) {
				return
			}
			refused++
			err := do("/" + service.ServiceName + "/" + name)
			if s, _ := status.FromError(err); s.Code() != codes.Unimplemented || !strings.Contains(s.Message(), "send the call to etcd") {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, m := range service.Methods {
			check(m.MethodName, func(name string) error {
				return conn.Invoke(within(t), name, &wire.Encoded{}, &wire.Encoded{}, grpc.ForceCodecV2(newCodec()))
			})
		}
		for _, s := range service.Streams {
			check(s.StreamName, func(name string) error {
				stream, err := conn.NewStream(within(t), &s, name, grpc.ForceCodecV2(newCodec()))
				if err == nil {
					_ = stream.SendMsg(&wire.Encoded{}) // RecvMsg returns the reason
					err = stream.RecvMsg(&wire.Encoded{})
				}
				return err
			})
		}
	}
	if refused != 10 {
		t.Errorf("%d methods were tried, want 10", refused)
	}
}

// The member list has the cache nodes, so that clients stay with the cache.
func TestMemberList(t *testing.T) {
	s := etcdtest.Start(t)
	rig := startPass(t, s.Endpoint(), func(c *etcdapi.Config) {
		c.Members = func() []etcdapi.Member {
			return []etcdapi.Member{{Name: "here", Client: "10.0.0.1:7400", Peer: "10.0.0.1:7401"}, {Name: "there", Client: "cache-2:7400", TLS: true}}
		}
	})
	if _, err := rig.up.Revision(within(t)); err != nil { // so that the cluster is known
		t.Fatal(err)
	}
	want, err := etcdserverpb.NewClusterClient(dialPlain(t, s.Endpoint())).MemberList(within(t), &etcdserverpb.MemberListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := etcdserverpb.NewClusterClient(rig.conn).MemberList(within(t), &etcdserverpb.MemberListRequest{Linearizable: true})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	ids := map[uint64]bool{0: true}
	for _, m := range got.GetMembers() {
		told = append(told, fmt.Sprint(m.GetName(), m.GetClientURLs(), m.GetPeerURLs(), m.GetIsLearner()))
		if ids[m.GetID()] {
			t.Errorf("%s has ID %d, which is 0 or taken", m.GetName(), m.GetID())
		}
		ids[m.GetID()] = true
	}
	if want := []string{"here[http://10.0.0.1:7400] [http://10.0.0.1:7401] false", "there[https://cache-2:7400] [] false"}; !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
	h, e := got.GetHeader(), want.GetHeader()
	if h.GetMemberId() != got.GetMembers()[0].GetID() || h.GetClusterId() != e.GetClusterId() || h.GetRaftTerm() != e.GetRaftTerm() || h.GetRevision() != e.GetRevision() {
		t.Errorf("header %v; etcd's is %v", h, e)
	}
}

// While etcd is unavailable, forwarded calls fail without a long wait.
func TestEtcdAway(t *testing.T) {
	s := etcdtest.Start(t)
	conn := startPass(t, s.Endpoint()).conn
	s.Stop()
	for _, service := range []*grpc.ServiceDesc{&etcdserverpb.KV_ServiceDesc, &etcdserverpb.Lease_ServiceDesc} {
		for _, m := range service.Methods {
			if m.MethodName == "Range" {
				continue
			}
			err := conn.Invoke(within(t), "/"+service.ServiceName+"/"+m.MethodName, &wire.Encoded{}, &wire.Encoded{}, grpc.ForceCodecV2(newCodec()))
			if status.Code(err) != codes.Unavailable {
				t.Errorf("%s: %v", m.MethodName, err)
			}
		}
	}
	stream, _ := keepAlive(t, conn)
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("keepalive: %v", err)
	}
}
