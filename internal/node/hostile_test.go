package node_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// dialRaw connects to a node without a client that checks requests.
func (m *machine) dialRaw(creds credentials.TransportCredentials) *grpc.ClientConn {
	m.c.t.Helper()
	conn, err := grpc.NewClient(m.clients, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewCodec())))
	if err != nil {
		m.c.t.Fatal(err)
	}
	m.c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// inParts returns transactions within transactions, each operation in two parts.
func inParts(levels, size int) []byte {
	b := bytes.Repeat([]byte{0x12, 0}, size/2)
	for range levels {
		b = protowire.AppendBytes([]byte{0x12}, protowire.AppendBytes([]byte{0x22, 0, 0x22}, b))
	}
	return b
}

// A transaction of a caller without rights costs the node no more memory than its size.
func TestNestedTransactionsCostTheirSize(t *testing.T) { // not parallel: it measures the process
	policed := startPoliced(t, policyHead+webMay)
	guarded, _ := startGuarded(t, 1)
	open := startCluster(t, 1, 1, shards(1, 1))
	open.ready()
	txn := inParts(1000, 1<<20)
	for name, conn := range map[string]*grpc.ClientConn{
		"without rights by the policy": policed.nodes[0].dialRaw(credentials.NewTLS(policed.tls(who{}))),
		"without a login at etcd":      guarded.nodes[0].dialRaw(insecure.NewCredentials()),
		"no rights are needed":         open.nodes[0].dialRaw(insecure.NewCredentials()),
	} {
		call := func(b []byte) error {
			return conn.Invoke(within(t), etcdserverpb.KV_Txn_FullMethodName, &wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(b)}}, new(wire.Encoded))
		}
		_ = call(nil) // connects
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := call(txn)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: taken", name)
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 64<<20 {
			t.Errorf("%s: a transaction of %d bytes costs %d bytes: %v", name, len(txn), cost, err)
		}
	}
}

// startCertified runs a node in front of an etcd with authentication on that accepts
// the names in certificates as users. The node's certificate names etcd's user root.
func startCertified(t *testing.T) *cluster {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure := "https://" + l.Addr().String()
	_ = l.Close()
	ca := certtest.NewCA(t, "test")
	files := certtest.NewFiles(t, ca.Issue(t, "etcd"), ca)
	dir := t.TempDir()
	p, err := etcdtest.NewProcess(within(t), etcdtest.ProcessConfig{Dir: dir, ClientAddr: freePort(t), PeerAddr: freePort(t)})
	if err != nil {
		t.Fatal(err)
	}
	plain := "http://" + p.Endpoint()
	p, err = etcdtest.NewProcess(within(t), etcdtest.ProcessConfig{Dir: dir, ClientAddr: p.Endpoint(), PeerAddr: freePort(t), Args: []string{
		"--listen-client-urls=" + plain + "," + secure, "--client-cert-auth",
		"--trusted-ca-file=" + files.CA, "--cert-file=" + files.Cert, "--key-file=" + files.Key,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	if err := p.Start(within(t)); err != nil {
		t.Fatal(err)
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{plain}, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	etcdtest.Permit(t, cli, "root")
	etcdtest.Permit(t, cli, "ann", "/a/", "/a0")
	if _, err := cli.AuthEnable(within(t)); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 1, 1, shards(1, 1))
	c.account, c.etcdURL = "root", secure
	c.etcdTLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: certtest.Pool(ca), Certificates: []tls.Certificate{ca.Issue(t, "root").Pair}}
	c.nodes[0].start()
	c.ready()
	return c
}

// askEverything makes calls of etcd's API that are forwarded, and returns the result of
// each.
func askEverything(t *testing.T, conn grpc.ClientConnInterface) map[string]error {
	out := make(map[string]error)
	kv, lease, maintenance := etcdserverpb.NewKVClient(conn), etcdserverpb.NewLeaseClient(conn), etcdserverpb.NewMaintenanceClient(conn)
	_, out["put"] = kv.Put(within(t), &etcdserverpb.PutRequest{Key: []byte("/a/1")})
	_, out["compact"] = kv.Compact(within(t), &etcdserverpb.CompactionRequest{Revision: 2})
	_, out["grant"] = lease.LeaseGrant(within(t), &etcdserverpb.LeaseGrantRequest{TTL: 600})
	_, out["leases"] = lease.LeaseLeases(within(t), &etcdserverpb.LeaseLeasesRequest{})
	_, out["time to live"] = lease.LeaseTimeToLive(within(t), &etcdserverpb.LeaseTimeToLiveRequest{ID: 7})
	_, out["status"] = maintenance.Status(within(t), &etcdserverpb.StatusRequest{})
	_, out["alarms"] = maintenance.Alarm(within(t), &etcdserverpb.AlarmRequest{})
	_, out["alarm"] = maintenance.Alarm(within(t), &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE})
	_, out["users"] = etcdserverpb.NewAuthClient(conn).UserList(within(t), &etcdserverpb.AuthUserListRequest{})
	alive, err := lease.LeaseKeepAlive(within(t))
	if err == nil {
		_ = alive.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: 7}) // Recv returns its result
		_, err = alive.Recv()
	}
	out["keep-alive"] = err
	return out
}

// A caller without a token does not act at etcd as the user in the node's certificate:
// neither through a node that knows that authentication is on, nor through a node that
// does not know it yet.
func TestCallersWithoutATokenDoNotActAsTheNode(t *testing.T) {
	t.Parallel()
	c := startCertified(t)
	for what, err := range askEverything(t, c.nodes[0].dialRaw(insecure.NewCredentials())) {
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrUserEmpty) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range askEverything(t, c.nodes[0].store.ProxyConn()) {
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrUserEmpty) {
			t.Errorf("%s, before the node has learned of authentication: %v", what, err)
		}
	}
	if r, err := c.etcdClient("", c.nodes[0]).AuthStatus(within(t)); err != nil || !r.Enabled {
		t.Errorf("status of authentication: %v, %v", r, err)
	}
	ann := c.etcdClient("ann", c.nodes[0]) // no alarm has stopped etcd's writes
	if _, err := ann.Put(within(t), "/a/1", "x"); err != nil {
		t.Error(err)
	}
	if _, err := ann.Grant(within(t), 600); err != nil {
		t.Error(err)
	}
}

// Only etcd's root role may change the cluster; a right to read all keys is not enough.
func TestOnlyRootAdministers(t *testing.T) {
	t.Parallel()
	c, root := startGuarded(t, 1)
	etcdtest.Permit(t, root, "ann", "\x00", "\x00")
	native := func(user string) *client.Client {
		cfg := client.Config{Endpoints: []string{c.nodes[0].clients}, RetryFor: patience, Username: user}
		if user != "" {
			cfg.Password = etcdtest.Password
		}
		cl, err := client.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.Close() })
		return cl
	}
	ann := native("ann")
	testkit.Succeeds(t, "ann's rights are known", func() error {
		_, err := ann.Get(within(t), "/k")
		return err
	})
	for user, cl := range map[string]*client.Client{"ann": ann, "": native("")} {
		want, says := client.ErrDenied, "etcd's root role"
		if user == "" {
			want, says = client.ErrUnauthenticated, "log in"
		}
		if _, err := admin.New(cl).BumpLineage(within(t), 1, "to harm", ""); !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q begins a lineage: %v", user, err)
		}
	}
	if got, err := admin.New(native("root")).BumpLineage(within(t), 1, "to be sure", ""); err != nil || got != 2 {
		t.Errorf("root begins lineage %d: %v", got, err)
	}
}

// Refused requests with long keys cost the audit log and the client no more than
// those with short keys.
func TestLongKeysAreClippedInLogsAndErrors(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, policyHead+webMay)
	conn := p.nodes[0].dialRaw(credentials.NewTLS(p.tls(who{name: "web"}))) // web has some right, so that its keys are checked
	long := bytes.Repeat([]byte{1}, 1<<20)
	for what, err := range map[string]error{
		"put": func() error {
			_, err := etcdserverpb.NewKVClient(conn).Put(within(t), &etcdserverpb.PutRequest{Key: long})
			return err
		}(),
		"range": func() error {
			_, err := etcdserverpb.NewKVClient(conn).Range(within(t), &etcdserverpb.RangeRequest{Key: long, RangeEnd: []byte{2}})
			return err
		}(),
		"an end before its key": func() error {
			_, err := etcdserverpb.NewKVClient(conn).Range(within(t), &etcdserverpb.RangeRequest{Key: long[1:], RangeEnd: long[2:]})
			return err
		}(),
	} {
		if err == nil || len(err.Error()) > 4<<10 {
			t.Errorf("%s: an error of %d bytes: %.300v", what, len(err.Error()), err)
		}
	}
	if text := p.audit.tail(1 << 30); len(text) > 16<<10 || !strings.Contains(text, "(1048576 bytes)") {
		t.Errorf("the audit log has %d bytes: %.300s", len(text), text)
	}
}

// etcdWatch begins a watch of etcd's API on one key, and returns the answer.
func etcdWatch(t *testing.T, conn grpc.ClientConnInterface, key, end []byte) *etcdserverpb.WatchResponse {
	t.Helper()
	s, err := etcdserverpb.NewWatchClient(conn).Watch(within(t))
	if err == nil {
		err = s.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{Key: key, RangeEnd: end}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A node refuses watch keys of megabytes, and too many bytes of watch keys.
func TestLongWatchKeysAreRefused(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, policyHead+strings.ReplaceAll(webMay, "watches: 3", "watch_key_bytes: 20KiB"))
	conn := p.nodes[0].dialRaw(credentials.NewTLS(p.tls(who{name: "web"})))
	key := func(size int) []byte { return append([]byte("/web/"), bytes.Repeat([]byte("k"), size-5)...) }
	native := p.native(who{name: "web"})
	for what, r := range map[string]client.Range{
		"key": client.Key(string(key(8<<10 + 1))), "range_end": {Start: "/web/", End: string(key(8<<10 + 1))},
	} {
		w := native.Watch(within(t), r)
		if _, err := w.Next(within(t)); err == nil || !strings.Contains(err.Error(), what+": 8193 bytes: a watch takes keys of at most 8192") {
			t.Errorf("%s: %v", what, err)
		}
		w.Close()
	}
	if m := etcdWatch(t, conn, key(1<<20), nil); !m.GetCanceled() || !strings.Contains(m.GetCancelReason(), "key: 1048576 bytes: a watch takes keys of at most 8192") {
		t.Errorf("etcd's API: %v", m)
	}
	if m := etcdWatch(t, conn, key(10), key(1<<20)); !m.GetCanceled() || !strings.Contains(m.GetCancelReason(), "range_end: 1048576 bytes") {
		t.Errorf("etcd's API: %v", m)
	}
	// The longest key and its range end fit the limit of the identity once.
	if m := etcdWatch(t, conn, key(8<<10), nil); m.GetCanceled() {
		t.Errorf("the longest key: %v", m)
	}
	if m := etcdWatch(t, conn, key(8<<10), nil); !m.GetCanceled() || !strings.Contains(m.GetCancelReason(), "watch_key_bytes") {
		t.Errorf("over the limit of the identity: %v", m)
	}
	w := native.Watch(within(t), client.Key(string(key(8<<10))))
	defer w.Close()
	testkit.Succeeds(t, "the watch is refused", func() error {
		if err := w.Stats().LastError; err == nil || !strings.Contains(err.Error(), "watch_key_bytes") {
			return fmt.Errorf("the watch is not refused: %w", err)
		}
		return nil
	})
}

// An identity's connections count from their handshake on, with or without a call.
func TestConnectionsCountWithoutCalls(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, policyHead+strings.ReplaceAll(webMay, "watches: 3", "connections: 2"))
	dial := func() (net.Conn, error) {
		cfg := p.tls(who{name: "web"})
		cfg.NextProtos = []string{"h2"}
		conn, err := tls.Dial("tcp", p.nodes[0].clients, cfg)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1)) // of the server's first settings
		return conn, err
	}
	first, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(); err == nil {
		t.Error("a third connection is accepted")
	}
	_ = first.Close()
	testkit.Succeeds(t, "a new connection is accepted after the first has ended", func() error {
		_, err := dial()
		return err
	})
}

// A health check needs no name. A watch of the health needs a caller with some right,
// and counts as a call.
func TestHealthWatchesObeyThePolicy(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, policyHead+webMay)
	watch := func(w who) error {
		conn, err := grpc.NewClient(p.nodes[0].clients, grpc.WithTransportCredentials(credentials.NewTLS(p.tls(w))))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = conn.Close() })
		health := healthgrpc.NewHealthClient(conn)
		if _, err := health.Check(within(t), &healthgrpc.HealthCheckRequest{}); err != nil {
			t.Errorf("check: %v", err)
		}
		s, err := health.Watch(within(t), &healthgrpc.HealthCheckRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	if err := watch(who{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("anonymous: %v", err)
	}
	if err := watch(who{name: "web"}); err != nil {
		t.Errorf("cn:web: %v", err)
	}
}

// held returns the bytes of the heap that are in use, garbage excluded.
func held() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Watches that start before the window and whose client does not read them do not make
// the node keep a copy of etcd's log each, and a client that reads receives everything.
func TestUnreadCatchUpsFillNoMemory(t *testing.T) { // not parallel: it measures the process
	p, err := etcdtest.NewProcess(within(t), etcdtest.ProcessConfig{Dir: t.TempDir(), ClientAddr: freePort(t), PeerAddr: freePort(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	if err := p.Start(within(t)); err != nil {
		t.Fatal(err)
	}
	const window = 1 << 20
	c := newCluster(t, 1, 1, func(cfg *node.Config) {
		shards(1, 1)(cfg)
		cfg.Cache.WindowBytes, cfg.MaxClientBytes = window, 64<<20
	})
	c.etcdURL = "http://" + p.Endpoint()
	c.nodes[0].start()
	c.ready()
	n := c.nodes[0]
	kv := etcdserverpb.NewKVClient(n.dialRaw(insecure.NewCredentials()))
	const keys, watches = 300, 120
	value := bytes.Repeat([]byte("v"), 10<<10)
	var first, last int64
	for i := range keys {
		r, err := kv.Put(within(t), &etcdserverpb.PutRequest{Key: fmt.Appendf(nil, "/k/%03d", i), Value: value})
		if err != nil {
			t.Fatal(err)
		}
		if last = r.GetHeader().GetRevision(); i == 0 {
			first = last
		}
	}
	watch := func(key string) *etcdserverpb.WatchCreateRequest {
		return &etcdserverpb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte("/k0"), StartRevision: first}
	}
	chief, err := client.New(client.Config{Endpoints: []string{n.clients}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = chief.Close() })
	rest, open := held(), 0
	for what, key := range map[string]func(i int) string{
		"of one range":          func(int) string { return "/k/" },
		"of a range for itself": func(i int) string { return fmt.Sprintf("/k/%03d", i) },
	} {
		attack, err := etcdserverpb.NewWatchClient(n.dialRaw(insecure.NewCredentials())).Watch(within(t))
		if err != nil {
			t.Fatal(err)
		}
		for i := range watches {
			if err := attack.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: watch(key(i))}}); err != nil {
				t.Fatal(err)
			}
		}
		open += watches
		testkit.Succeeds(t, "all watches of the attack are open", func() error {
			if all, err := admin.New(chief).Watchers(within(t), n.clients, admin.WatcherFilter{}); err != nil || len(all) < open {
				return fmt.Errorf("%d are open: %w", len(all), err)
			}
			return nil
		})
		reader, err := etcdserverpb.NewWatchClient(n.dialRaw(insecure.NewCredentials())).Watch(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := reader.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: watch("/k/")}}); err != nil {
			t.Fatal(err)
		}
		for next := first; next <= last; {
			m, err := reader.Recv()
			if err != nil {
				t.Fatalf("each %s: %v", what, err)
			}
			for _, e := range m.GetEvents() {
				if e.GetKv().GetModRevision() != next {
					t.Fatalf("each %s: revision %d, want %d", what, e.GetKv().GetModRevision(), next)
				}
				next++
			}
		}
		if more := held() - rest; more > 48<<20 {
			t.Errorf("each %s: %d unread watches of a log of %d MiB hold %d MiB", what, watches, keys*len(value)>>20, more>>20)
		}
		open++ // the reader's watch: all stay open
	}
}
