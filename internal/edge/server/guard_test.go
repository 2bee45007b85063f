package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// warden is a Guard that takes a token for the name of its user. The token "old" has expired.
type warden struct {
	mu      sync.Mutex
	table   *etcdroles.Table // nil: authentication is off; guarded by mu
	changed chan struct{}    // guarded by mu
	asked   chan struct{}    // if set, callers send to it, and then wait to receive from it
	shared  map[string]string
	rereads atomic.Int32
}

func newWarden() *warden {
	return &warden{changed: make(chan struct{}), shared: make(map[string]string)}
}

// grant sets the prefixes that users may read. No users turn authentication off.
func (g *warden) grant(users map[string]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.table = nil
	if users != nil {
		grants := etcdroles.Grants{Users: map[string][]string{}, Roles: map[string][]etcdroles.Permission{}}
		for user, prefix := range users {
			grants.Users[user] = []string{user}
			grants.Roles[user] = []etcdroles.Permission{{Key: prefix, RangeEnd: kv.PrefixEnd(prefix), Read: true}}
		}
		g.table = grants.Table()
	}
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *warden) Caller(ctx context.Context) (string, error) {
	if g.asked != nil {
		g.asked <- struct{}{}
		<-g.asked
	}
	md, _ := metadata.FromIncomingContext(ctx)
	switch token := md.Get("token"); {
	case len(token) == 0:
		return "", rpctypes.ErrGRPCUserEmpty
	case token[0] == "old":
		return "", rpctypes.ErrGRPCInvalidAuthToken
	case token[0] == "away":
		return "", wire.Status(&kv.UnavailableError{Why: kv.EtcdUnavailable, Detail: "away"})
	default:
		return token[0], nil
	}
}

func (g *warden) MayRead(caller string, r kv.Range) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.table == nil:
		return nil
	case caller == "":
		return rpctypes.ErrGRPCUserEmpty
	case !g.table.MayRead(caller, r):
		return rpctypes.ErrGRPCPermissionDenied
	}
	return nil
}

func (g *warden) MayAdminister(caller string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.table != nil && !g.table.Root(caller) {
		return rpctypes.ErrGRPCPermissionDenied
	}
	return nil
}

func (g *warden) MayLook(caller string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.table == nil:
		return nil
	case caller == "":
		return rpctypes.ErrGRPCUserEmpty
	case !g.table.Has(caller):
		return rpctypes.ErrGRPCPermissionDenied
	}
	return nil
}

func (g *warden) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

func (g *warden) Share(id []byte, user string)       { g.shared[string(id)] = user }
func (g *warden) Identify(id []byte) string          { return g.shared[string(id)] }
func (*warden) Refresh(context.Context)              {}
func (g *warden) Reread(context.Context)             { g.rereads.Add(1) }
func (g *warden) Rights() *peerv1.ReadRightsResponse { return &peerv1.ReadRightsResponse{Revision: 7} }

// guarded runs a server with a guard.
func guarded(t *testing.T) (*running, *warden) {
	t.Helper()
	g := newWarden()
	return start(t, cachetest.New(), options{server: func(c *server.Config) { c.Guard = g }}), g
}

// as returns a client's context with a token; "" means without.
func as(t *testing.T, token string) context.Context {
	if token == "" {
		return t.Context()
	}
	return metadata.AppendToOutgoingContext(t.Context(), "token", token)
}

func watchAs(t *testing.T, token string, conn *grpc.ClientConn) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(as(t, token), deadline)
	t.Cleanup(cancel)
	rpc, err := pb.NewCacheServiceClient(conn).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &stream{tb: t, rpc: rpc, end: cancel}
}

func TestReadsAreGuarded(t *testing.T) {
	r, g := guarded(t)
	r.h.Commit(cachetest.Put("a", "1"))
	client := pb.NewCacheServiceClient(r.conn)
	list := func(client pb.CacheServiceClient, token, key, end string) error {
		s, err := client.List(as(t, token), &pb.ListRequest{Key: []byte(key), RangeEnd: []byte(end)})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	get := func(client pb.CacheServiceClient, token, key string) error {
		_, err := client.Get(as(t, token), &pb.GetRequest{Key: []byte(key)})
		return err
	}
	for _, token := range []string{"", "old", "bob"} {
		if err := get(client, token, "a"); err != nil {
			t.Errorf("with authentication off, token %q: %v", token, err)
		}
	}
	g.grant(map[string]string{"ann": "a", "bob": "b"})
	for _, c := range []struct {
		token, key, end string
		code            codes.Code
		says            string
	}{
		{"ann", "a", "", codes.OK, ""},
		{"ann", "a", "b", codes.OK, ""},
		{"ann", "a", "\x00", codes.PermissionDenied, "permission denied"},
		{"ann", "b", "", codes.PermissionDenied, "permission denied"},
		{"bob", "a", "", codes.PermissionDenied, "permission denied"},
		{"bob", "\x00", "\x00", codes.PermissionDenied, "permission denied"},
		{"", "a", "", codes.Unauthenticated, "has no token"},
		{"old", "a", "", codes.Unauthenticated, "log in again"},
		{"away", "a", "", codes.Unavailable, "away"},
	} {
		errs := []error{list(client, c.token, c.key, c.end)}
		if c.end == "" {
			errs = append(errs, get(client, c.token, c.key))
		}
		for _, err := range errs {
			if status.Code(err) != c.code || (err != nil && (!strings.Contains(err.Error(), c.says) || len(status.Convert(err).Details()) == 0)) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
	// Another node has checked the rights of its client.
	if err := get(pb.NewCacheServiceClient(dial(t, r.peers)), "", "a"); err != nil {
		t.Errorf("on the peer port: %v", err)
	}
}

func TestWatchesAreGuarded(t *testing.T) {
	r, g := guarded(t)
	g.grant(map[string]string{"ann": "a", "bob": "b"})
	on := func(id int64, prefix string) *pb.CreateWatch {
		return &pb.CreateWatch{
			WatchId: id, Key: []byte(prefix), RangeEnd: []byte(kv.PrefixEnd(prefix)),
			Start: &pb.CreateWatch_StartRevision{StartRevision: first},
		}
	}
	for token, want := range map[string]pb.EndReason{
		"":     pb.EndReason_END_REASON_UNAUTHENTICATED,
		"old":  pb.EndReason_END_REASON_UNAUTHENTICATED,
		"bob":  pb.EndReason_END_REASON_DENIED,
		"away": pb.EndReason_END_REASON_UNAVAILABLE,
	} {
		s := watchAs(t, token, r.conn)
		s.create(on(1, "a"))
		if e := s.ended(1); e.GetReason() != want {
			t.Errorf("token %q: %v", token, e)
		}
	}
	ann, bob := watchAs(t, "ann", r.conn), watchAs(t, "bob", r.conn)
	ann.create(on(1, "a"))
	ann.created(1)
	bob.create(on(1, "b"))
	bob.created(1)
	peer := watchOn(t, dial(t, r.peers))
	peer.create(all(1, first))
	peer.created(1)
	r.h.Commit(cachetest.Put("a", "1"))
	if m := ann.next(); len(m.GetEvents()) != 1 {
		t.Errorf("got %v", m)
	}
	g.grant(map[string]string{"ann": "aa", "bob": "b"}) // narrows ann's right
	if e := ann.ended(1); e.GetReason() != pb.EndReason_END_REASON_DENIED || e.GetResumeRevision() != first+1 || len(e.GetResumeToken()) == 0 {
		t.Errorf("a watch whose right was revoked: %v", e)
	}
	ann.create(on(1, "aa"))
	ann.created(1)
	r.h.Commit(cachetest.Put("b", "1")) // bob's watch continues
	if m := bob.next(); len(m.GetEvents()) != 1 {
		t.Errorf("got %v", m)
	}
	g.grant(nil)
	nobody := watchAs(t, "", r.conn)
	nobody.create(on(1, "a"))
	nobody.created(1)
	if m := nobody.next(); len(m.GetEvents()) != 1 {
		t.Errorf("got %v", m)
	}
	g.grant(map[string]string{"bob": "b"})
	if e := nobody.ended(1); e.GetReason() != pb.EndReason_END_REASON_UNAUTHENTICATED {
		t.Errorf("a watch without a token after authentication was turned on: %v", e)
	}
	r.h.Commit(cachetest.Put("b", "2"))
	if m := bob.next(); len(m.GetEvents()) != 1 {
		t.Errorf("got %v", m)
	}
	for range 3 { // streams of other nodes are not checked
		if m := peer.next(); len(m.GetEvents()) != 1 {
			t.Errorf("got %v", m)
		}
	}
}

// If a right is revoked while the caller is being identified, the watch is refused. Other requests
// of the stream do not wait.
func TestRightIsLostWhileAWatchOpens(t *testing.T) {
	r, g := guarded(t)
	g.grant(map[string]string{"ann": "a"})
	g.asked = make(chan struct{})
	s := watchAs(t, "ann", r.conn)
	s.create(&pb.CreateWatch{WatchId: 1, Key: []byte("a")})
	<-g.asked
	s.cancel(7) // no such watch: has no effect
	g.grant(map[string]string{"bob": "b"})
	g.asked <- struct{}{}
	if e := s.ended(1); e.GetReason() != pb.EndReason_END_REASON_DENIED {
		t.Errorf("got %v", e)
	}
}

func TestNodesShareTheirKnowledgeOfTokens(t *testing.T) {
	r, g := guarded(t)
	peer := peerv1.NewPeerServiceClient(dial(t, r.peers))
	id := sha256.Sum256([]byte("token"))
	identify := func() string {
		t.Helper()
		m, err := peer.IdentifyToken(t.Context(), &peerv1.IdentifyTokenRequest{TokenSha256: id[:]})
		if err != nil {
			t.Fatal(err)
		}
		return m.GetUser()
	}
	if user := identify(); user != "" {
		t.Errorf("got %q", user)
	}
	if _, err := peer.ShareToken(t.Context(), &peerv1.ShareTokenRequest{TokenSha256: bytes.Clone(id[:]), User: "ann"}); err != nil {
		t.Fatal(err)
	}
	if user := identify(); user != "ann" {
		t.Errorf("got %q", user)
	}
	if m, err := peer.ReadRights(t.Context(), &peerv1.ReadRightsRequest{}); err != nil || m.GetRevision() != 7 {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := peer.RereadRights(t.Context(), &peerv1.RereadRightsRequest{}); err != nil || g.rereads.Load() != 1 {
		t.Errorf("%v; rights read %d times, want once", err, g.rereads.Load())
	}
	// Clients cannot call the peer service.
	client := peerv1.NewPeerServiceClient(r.conn)
	if _, err := client.IdentifyToken(t.Context(), &peerv1.IdentifyTokenRequest{TokenSha256: id[:]}); status.Code(err) != codes.Unimplemented {
		t.Errorf("on the client port: %v", err)
	}
}

// While etcd's authentication is on, shard map, members and status are shown only to etcd's users,
// whatever these may read. Other nodes need no user. A shard map stream ends with an error when its
// user is removed.
func TestTheClusterIsShownToUsers(t *testing.T) {
	r, g := guarded(t)
	follow := func(token string) pb.ClusterService_WatchShardMapClient {
		t.Helper()
		ctx, cancel := context.WithTimeout(as(t, token), deadline)
		t.Cleanup(cancel)
		s, err := pb.NewClusterServiceClient(r.conn).WatchShardMap(ctx, &pb.WatchShardMapRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	look := func(conn *grpc.ClientConn, token string) map[string]error {
		_, members := pb.NewClusterServiceClient(conn).ListMembers(as(t, token), &pb.ListMembersRequest{})
		_, own := pb.NewClusterServiceClient(conn).Status(as(t, token), &pb.StatusRequest{})
		return map[string]error{"members": members, "status": own}
	}
	operators := func(token string) map[string]error {
		admin := pb.NewAdminServiceClient(r.conn)
		_, all := admin.ClusterStatus(as(t, token), &pb.ClusterStatusRequest{})
		_, trace := admin.TraceRevision(as(t, token), &pb.TraceRevisionRequest{Revision: 1})
		_, first := follow(token).Recv()
		return map[string]error{"status of all": all, "trace": trace, "map": first}
	}
	expect := func(what string, errs map[string]error, want codes.Code, says string) {
		t.Helper()
		for which, err := range errs {
			if status.Code(err) != want || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %s: %v, want %v", what, which, err, want)
			}
		}
	}
	expect("with authentication off", look(r.conn, ""), codes.OK, "")
	expect("with authentication off", operators(""), codes.OK, "")
	before := follow("")
	if _, err := before.Recv(); err != nil {
		t.Fatal(err)
	}
	g.grant(map[string]string{"ann": "a", "bob": "b"})
	if _, err := before.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a shard map stream opened before authentication was turned on: %v", err)
	}
	for token, c := range map[string]struct {
		code codes.Code
		says string
	}{
		"":     {codes.Unauthenticated, "has no token"},
		"old":  {codes.Unauthenticated, "log in again"},
		"away": {codes.Unavailable, "away"},
		"eve":  {codes.PermissionDenied, "permission denied"}, // deleted a moment ago
		"ann":  {codes.OK, ""},
	} {
		expect("token "+token, look(r.conn, token), c.code, c.says)
		expect("token "+token, operators(token), c.code, c.says)
	}
	expect("another node", look(dial(t, r.peers), ""), codes.OK, "")
	ann, bob := follow("ann"), follow("bob")
	for _, s := range []pb.ClusterService_WatchShardMapClient{ann, bob} {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	g.grant(map[string]string{"bob": "c"})
	if _, err := ann.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the shard map stream of a deleted user: %v", err)
	}
	g.grant(nil)
	g.grant(map[string]string{"ann": "c"})
	if _, err := bob.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the shard map stream of the last user, after its removal: %v", err)
	}
}
