package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/metadata"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// written is a log that can be read while it is written.
type written struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.Write(b)
}

func (w *written) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.buf.Reset()
	return w.buf.String()
}

// policed is a server with a policy for anonymous callers.
type policed struct {
	*running
	access *authz.Authorizer
	file   string
	audit  written
}

const (
	readers = "limits: {streams: 2, watches: 2, list_bytes: 1}\nroles: {r: [{verbs: [read, watch], prefixes: [a]}]}\nidentities: [{match: [anonymous], roles: [r]}]\n"
	nobody  = "roles: {r: [{verbs: [read], prefixes: [a]}]}\nidentities: [{match: [\"sub:ann\"], roles: [r]}]\ntokens: {issuer: https://us, audience: x, keys: jwks.json}\n"
	admins  = "roles: {r: [{verbs: [operator:read, operator:write]}]}\nidentities: [{match: [anonymous], roles: [r]}]\n"
	lookers = "roles: {r: [{verbs: [operator:read]}]}\nidentities: [{match: [anonymous], roles: [r]}]\n"
	robots  = "roles: {r: [{verbs: [operator:write]}]}\nidentities: [{match: [anonymous], roles: [r]}]\n"
)

func police(t *testing.T, policy string, change ...func(*authz.Config)) *policed {
	t.Helper()
	dir := t.TempDir()
	p := &policed{file: filepath.Join(dir, "policy.yaml")}
	p.write(t, policy)
	c := authz.Defaults()
	c.File, c.Audit = p.file, authz.NewAudit(slog.New(slog.NewTextHandler(&p.audit, nil)))
	for _, f := range change {
		f(&c)
	}
	var err error
	if p.access, err = authz.New(c); err != nil {
		t.Fatal(err)
	}
	p.running = start(t, cachetest.New(), options{server: func(s *server.Config) { s.Access, s.Audit = p.access, c.Audit }})
	return p
}

func (p *policed) write(t *testing.T, policy string) {
	t.Helper()
	keys := `{"keys":[{"kty":"EC","kid":"1","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`
	for name, text := range map[string]string{p.file: policy, filepath.Join(filepath.Dir(p.file), "jwks.json"): keys} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *policed) change(t *testing.T, policy string) {
	t.Helper()
	p.write(t, policy)
	if err := p.access.Reload(); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// A caller that is refused repeatedly waits for its answers, whatever kinds of call it makes.
func TestRefusedCallsWait(t *testing.T) {
	if os.Getenv("CACHENODE_CLIENT_SERVER") == "grpc-go" {
		t.Skip("grpc-go's server answers refused calls at once")
	}
	p := police(t, readers, func(c *authz.Config) { c.RefusalsPerSecond = 1 })
	unary := func(ctx context.Context) error {
		_, err := pb.NewCacheServiceClient(p.conn).Get(ctx, &pb.GetRequest{Key: []byte("b")})
		return err
	}
	stream := func(ctx context.Context) error {
		l, err := pb.NewCacheServiceClient(p.conn).List(ctx, &pb.ListRequest{Key: []byte("b")})
		if err == nil {
			_, err = l.Recv()
		}
		return err
	}
	order := func(ctx context.Context) error {
		_, err := pb.NewAdminServiceClient(p.conn).ClusterStatus(ctx, &pb.ClusterStatusRequest{})
		return err
	}
	wantCode(t, "the first refusal", unary(t.Context()), codes.PermissionDenied)
	for i, call := range []func(context.Context) error{unary, stream, order} {
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() {
			err := call(ctx)
			for ctx.Err() == nil && wire.IsDenied(err) { // until refusals wait: after a second, one is answered at once
				err = call(ctx)
			}
			answered <- err
		}()
		testkit.Eventually(t, "a repeated refusal waits", func() bool { return p.access.Status().Delayed > int64(i) })
		_, err := pb.NewCacheServiceClient(p.conn).Get(t.Context(), &pb.GetRequest{Key: []byte("a1")})
		wantCode(t, "a call that is allowed", err, codes.OK)
		cancel()
		if err := <-answered; !wire.IsDenied(err) { // unless more than a second has passed
			wantCode(t, "a refusal that waits", err, codes.Canceled)
		}
	}
}

// A caller without any right to a call, or with a forged token, is refused before its request is decoded
// (the request of this test cannot be decoded). The refusal is counted and recorded once.
func TestRequestsWithoutRightsAreNotDecoded(t *testing.T) {
	if os.Getenv("CACHENODE_CLIENT_SERVER") == "grpc-go" {
		t.Skip("grpc-go's server decodes a request before it checks the rights")
	}
	p := police(t, nobody)
	both := startBoth(t, func(c *server.Config) { c.Access = p.access })
	call := func(method string, header ...string) error {
		request := &wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(bytes.Repeat([]byte{0xff}, 1<<20))}}
		s, err := both.conn.NewStream(metadata.AppendToOutgoingContext(t.Context(), header...), &grpc.StreamDesc{ServerStreams: true}, method, grpc.ForceCodecV2(wire.NewCodec()))
		if err == nil {
			err = s.SendMsg(request)
		}
		if err == nil {
			err = s.CloseSend()
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = s.RecvMsg(new(wire.Encoded))
		}
		return err
	}
	reads := []string{
		etcdserverpb.KV_Range_FullMethodName, etcdserverpb.KV_RangeStream_FullMethodName,
		pb.CacheService_Get_FullMethodName, pb.CacheService_List_FullMethodName,
	}
	writes := []string{etcdserverpb.KV_Put_FullMethodName, etcdserverpb.KV_DeleteRange_FullMethodName}
	others := []string{
		etcdserverpb.KV_Txn_FullMethodName, etcdserverpb.KV_Compact_FullMethodName, etcdserverpb.Lease_LeaseGrant_FullMethodName,
		v3lockpb.Lock_Lock_FullMethodName, v3electionpb.Election_Observe_FullMethodName, etcdserverpb.Auth_Authenticate_FullMethodName,
	}
	all := slices.Concat(reads, writes, others)
	count := func(of codes.Code, want int) {
		t.Helper()
		counted := 0
		both.server.Calls(func(_, code string, times int64) {
			if code == of.String() {
				counted += int(times)
			}
		})
		if counted != want {
			t.Errorf("%d calls with %v are counted, want %d", counted, of, want)
		}
	}
	for _, method := range all {
		wantCode(t, "a stranger calls "+method, call(method), codes.PermissionDenied)
	}
	count(codes.PermissionDenied, len(all))
	log := p.audit.take()
	forged := strings.Join([]string{
		base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"1"}`)), base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://us","aud":"x","sub":"ann"}`)), "AAAA",
	}, ".")
	for _, method := range all[:3] {
		wantCode(t, "a forger calls "+method, call(method, "authorization", "Bearer "+forged), codes.Unauthenticated)
	}
	count(codes.Unauthenticated, 3)
	if lines := strings.Count(p.audit.take(), "\n"); lines != 3 {
		t.Errorf("3 calls with forged tokens have %d lines in the audit log, want 3", lines)
	}
	if !strings.Contains(log, "read anything") || !strings.Contains(log, "write anything") || !strings.Contains(log, "do anything") {
		t.Errorf("the log lacks a refused call: %s", log)
	}
	p.change(t, readers)
	for _, method := range reads {
		wantCode(t, "a reader calls "+method, call(method), codes.Internal)
	}
	for _, method := range writes {
		wantCode(t, "a reader calls "+method, call(method), codes.PermissionDenied)
	}
}

// The rights of a caller are checked before a call is served. Administration requires an
// administrator, and information about the cluster a caller with any right. Probes require none.
func TestThePolicyAdmitsCalls(t *testing.T) {
	p := police(t, readers)
	members := func() error {
		_, err := pb.NewClusterServiceClient(p.conn).ListMembers(t.Context(), &pb.ListMembersRequest{})
		return err
	}
	follow := func() error {
		s, err := pb.NewClusterServiceClient(p.conn).WatchShardMap(t.Context(), &pb.WatchShardMapRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	look := func() error {
		_, err := pb.NewAdminServiceClient(p.conn).ClusterStatus(t.Context(), &pb.ClusterStatusRequest{})
		return err
	}
	bump := func() error {
		_, err := pb.NewAdminServiceClient(p.conn).BumpLineage(t.Context(), &pb.BumpLineageRequest{Lineage: 1, Reason: "a restore"})
		return err
	}
	probe := func() error {
		_, err := healthgrpc.NewHealthClient(p.conn).Check(t.Context(), &healthgrpc.HealthCheckRequest{})
		return err
	}
	get := func(key string) error {
		_, err := pb.NewCacheServiceClient(p.conn).Get(t.Context(), &pb.GetRequest{Key: []byte(key)})
		return err
	}
	wantCode(t, "a reader gets its key", get("a1"), codes.OK)
	wantCode(t, "a reader gets another key", get("b"), codes.PermissionDenied)
	wantCode(t, "a reader asks for the members", members(), codes.OK)
	wantCode(t, "a reader asks for the status", look(), codes.PermissionDenied)
	p.audit.take()
	wantCode(t, "a reader begins a lineage", bump(), codes.PermissionDenied)
	if log := p.audit.take(); !strings.Contains(log, "administration") || !strings.Contains(log, "BumpLineage") || !strings.Contains(log, "PermissionDenied") {
		t.Errorf("the audit log lacks a refused call: %s", log)
	}

	p.change(t, admins)
	wantCode(t, "an administrator asks for the status", look(), codes.OK)
	if log := p.audit.take(); strings.Contains(log, "administration") {
		t.Errorf("the audit log has a read-only call: %s", log)
	}
	wantCode(t, "an administrator begins a lineage at a node that cannot", bump(), codes.Unavailable)
	if log := p.audit.take(); !strings.Contains(log, "administration") || !strings.Contains(log, "a restore") || !strings.Contains(log, "Unavailable") {
		t.Errorf("the audit log lacks a call of an administrator: %s", log)
	}
	wantCode(t, "an administrator gets a key", get("a1"), codes.PermissionDenied)

	p.change(t, lookers)
	wantCode(t, "operator:read asks for the status", look(), codes.OK)
	wantCode(t, "operator:read asks for the members", members(), codes.OK)
	wantCode(t, "operator:read begins a lineage", bump(), codes.PermissionDenied)
	p.change(t, robots)
	wantCode(t, "operator:write asks for the status", look(), codes.PermissionDenied)
	wantCode(t, "operator:write begins a lineage at a node that cannot", bump(), codes.Unavailable)

	p.change(t, nobody)
	wantCode(t, "a stranger asks for the members", members(), codes.PermissionDenied)
	wantCode(t, "a stranger follows the shard map", follow(), codes.PermissionDenied)
	wantCode(t, "a stranger asks for the status", look(), codes.PermissionDenied)
	wantCode(t, "a stranger gets a key", get("a1"), codes.PermissionDenied)
	wantCode(t, "a probe", probe(), codes.OK)
}

// Calls and watches of a caller count until they end. Canceled watches, and the watches of an ended
// stream, no longer count.
func TestEndedCallsAreNotCounted(t *testing.T) {
	p := police(t, readers)
	some := func(id int64) *pb.CreateWatch {
		return &pb.CreateWatch{WatchId: id, Key: []byte("a"), RangeEnd: []byte("b"), Start: &pb.CreateWatch_StartRevision{StartRevision: first}}
	}
	s := p.watch()
	for id := range int64(2) {
		s.create(some(id + 1))
		s.created(id + 1)
	}
	s.create(some(3))
	if e := s.ended(3); e.GetReason() != pb.EndReason_END_REASON_LIMIT {
		t.Errorf("a watch beyond the limit of two: %v", e)
	}
	for _, id := range []int64{1, 2, 2, 1} {
		s.cancel(id)
		if e := s.ended(id); e.GetReason() != pb.EndReason_END_REASON_CANCELED {
			t.Fatalf("cancelled: %v", e)
		}
		s.create(some(id))
		s.created(id)
	}
	other := p.watch()
	other.create(some(1))
	if e := other.ended(1); e.GetReason() != pb.EndReason_END_REASON_LIMIT {
		t.Errorf("a watch beyond the limit, on another stream: %v", e)
	}
	third := p.watch()
	if _, err := third.rpc.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream beyond the limit of two: %v", err)
	}
	s.end()
	testkit.Eventually(t, "the watches and the call of the ended stream no longer count", func() bool {
		next := p.watch()
		defer next.end()
		// A refused stream may have ended already; Recv returns the error.
		_ = next.rpc.Send(&pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: some(1)}})
		m, err := next.rpc.Recv()
		return err == nil && m.GetCreated() != nil
	})
	other.end()
	for range 20 { // ended calls do not count, whether served or refused
		testkit.Eventually(t, "a call is admitted", func() bool {
			_, err := pb.NewCacheServiceClient(p.conn).Get(t.Context(), &pb.GetRequest{Key: []byte("a")})
			return err == nil
		})
		if _, err := pb.NewCacheServiceClient(p.conn).Get(t.Context(), &pb.GetRequest{Key: []byte("b")}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("a key outside of the caller's rights: %v", err)
		}
		if _, err := list(t, p.conn, &pb.ListRequest{Key: []byte("a"), RangeEnd: []byte("b")}); err != nil {
			t.Errorf("a list: %v", err)
		}
	}
}

// When the policy changes, watches that it no longer allows end, and no others.
func TestAPolicyThatChangesEndsWatches(t *testing.T) {
	p := police(t, strings.NewReplacer("prefixes: [a]", "prefixes: [a, c]", "watches: 2", "watches: 3").Replace(readers))
	s := p.watch()
	for id, key := range []string{"a", "c"} {
		s.create(&pb.CreateWatch{WatchId: int64(id + 1), Key: []byte(key), RangeEnd: []byte{key[0] + 1}, Start: &pb.CreateWatch_StartRevision{StartRevision: first}})
		s.created(int64(id + 1))
	}
	s.create(&pb.CreateWatch{WatchId: 3, Key: []byte("b"), Start: &pb.CreateWatch_StartRevision{StartRevision: first}})
	if e := s.ended(3); e.GetReason() != pb.EndReason_END_REASON_DENIED {
		t.Errorf("a watch that the first policy does not allow: %v", e)
	}
	p.change(t, readers)
	if e := s.ended(2); e.GetReason() != pb.EndReason_END_REASON_DENIED {
		t.Errorf("got %v", e)
	}
	p.h.Commit(cachetest.Put("c", "1"), cachetest.Put("a", "1"))
	if m := s.next(); m.GetWatchId() != 1 {
		t.Errorf("the watch that is still allowed got %v", m)
	}
}
