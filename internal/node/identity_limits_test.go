package node_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

const everyone = `
roles:
  all: [{verbs: [read, watch, write], all: true}]
identities:
  - {match: ["cn:small"], roles: [all], limits: {request_bytes: 2KiB, pending_bytes: 16MiB}}
  - {match: [authenticated], roles: [all]}
`

// An identity sends no larger messages than the policy allows, by either API, in calls
// and in streams; other identities send up to the node's limit.
func TestMessagesOfAnIdentityAreBounded(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, everyone)
	large, fits := strings.Repeat("v", 2<<10), strings.Repeat("v", 1<<10)
	const says = "the policy's request_bytes lets cn:small send 2048"
	refused := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	conn := p.nodes[0].dialRaw(credentials.NewTLS(p.tls(who{name: "small"})))
	kv := etcdserverpb.NewKVClient(conn)
	_, err := kv.Put(within(t), &etcdserverpb.PutRequest{Key: []byte("/k"), Value: []byte(large)})
	refused("put", err)
	_, err = kv.Txn(within(t), &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{{
		Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: []byte("/k"), Value: []byte(large)}},
	}}})
	refused("txn", err)
	_, err = kv.Range(within(t), &etcdserverpb.RangeRequest{Key: []byte(large)})
	refused("range", err)
	watch, err := etcdserverpb.NewWatchClient(conn).Watch(within(t))
	if err == nil {
		err = watch.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte(large)}}})
	}
	if err == nil {
		_, err = watch.Recv()
	}
	refused("watch", err)
	small := p.native(who{name: "small"})
	if _, err := small.Put(within(t), "/k", []byte(large)); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), says) {
		t.Errorf("native put: %v", err)
	}
	if _, err := small.Put(within(t), "/k", []byte(fits)); err != nil {
		t.Errorf("a put that fits: %v", err)
	}
	put := func(name, value string) (int, string) {
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: p.tls(who{name: name}), DisableKeepAlives: true}}
		r, err := web.Post("https://"+p.nodes[0].clients+"/v3/kv/put", "application/json", strings.NewReader(fmt.Sprintf(`{"key":%q,"value":%q}`, b64("/k"), b64(value))))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b := make([]byte, 1000)
		n, _ := r.Body.Read(b)
		return r.StatusCode, string(b[:n])
	}
	if code, answer := put("small", large); code != http.StatusBadRequest || !strings.Contains(answer, says) {
		t.Errorf("JSON put: %d %s", code, answer)
	}
	if code, answer := put("other", large); code != http.StatusOK {
		t.Errorf("JSON put of another identity: %d %s", code, answer)
	}
	if _, err := p.native(who{name: "other"}).Put(within(t), "/k", []byte(large)); err != nil {
		t.Errorf("put of another identity: %v", err)
	}
}

// An identity that does not read its responses is limited to its share of the
// node's memory, and others are served as before.
func TestAnIdentityThatDoesNotReadLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, everyone)
	p.etcd = etcdtest.Start(t)
	p.nodes[0].start()
	p.ready()
	cli := p.etcdV3(who{name: "other"})
	value := strings.Repeat("v", 1<<20)
	for i := range 6 {
		if _, err := cli.Put(within(t), fmt.Sprintf("/list/%02d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	list := fmt.Sprintf(`{"key":%q,"range_end":%q}`, b64("/list/"), b64("/list0"))
	post := func(name string) net.Conn {
		conn, err := tls.Dial("tcp", p.nodes[0].clients, p.tls(who{name: name}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := fmt.Fprintf(conn, "POST /v3/kv/range HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", p.nodes[0].clients, len(list), list); err != nil {
			t.Error(err)
		}
		return conn
	}
	for range 8 {
		post("small") // and reads nothing
	}
	asks := func(name string) (int, string) {
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: p.tls(who{name: name}), DisableKeepAlives: true}}
		r, err := web.Post("https://"+p.nodes[0].clients+"/v3/kv/range", "application/json", strings.NewReader(list))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b := make([]byte, 1000)
		n, _ := r.Body.Read(b)
		return r.StatusCode, string(b[:n])
	}
	testkit.Succeeds(t, "the identity has used its share", func() error {
		if code, answer := asks("small"); code != http.StatusTooManyRequests || !strings.Contains(answer, "the policy's pending_bytes") || !strings.Contains(answer, "cn:small") {
			return fmt.Errorf("%d %.200s", code, answer)
		}
		return nil
	})
	for range 5 {
		if code, answer := asks("other"); code != http.StatusOK {
			t.Errorf("another identity: %d %.200s", code, answer)
		}
	}
}

// One client may use half of a node's memory for watches, by either API, and other clients
// the rest. The end of a watch frees its share.
func TestWatchesOfANodeAreBounded(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, everyone, func(c *node.Config) { c.MaxWatchBytes = 1 << 20 })
	const each = 1 << 19 / (5 << 10) // what one client may have
	stream := func(name string) etcdserverpb.Watch_WatchClient {
		s, err := etcdserverpb.NewWatchClient(p.nodes[0].dialRaw(credentials.NewTLS(p.tls(who{name: name})))).Watch(within(t))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ask := func(s etcdserverpb.Watch_WatchClient, r *etcdserverpb.WatchRequest) *etcdserverpb.WatchResponse {
		t.Helper()
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	create := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("/k")}}}
	cancel := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: 0}}}
	refused := func(what string, m *etcdserverpb.WatchResponse, limit string) {
		t.Helper()
		if !m.GetCanceled() || !strings.Contains(m.GetCancelReason(), limit) {
			t.Errorf("%s: %v", what, m)
		}
	}
	small := stream("small")
	for i := range each {
		if m := ask(small, create); m.GetCanceled() {
			t.Fatalf("watch %d: %v", i, m)
		}
	}
	refused("one too many", ask(small, create), "half of --max-watch-bytes")
	w := p.native(who{name: "small"}).Watch(within(t), client.Key("/k"))
	defer w.Close()
	testkit.Succeeds(t, "a native watch is refused", func() error {
		if err := w.Stats().LastError; err == nil || !strings.Contains(err.Error(), "half of --max-watch-bytes") {
			return fmt.Errorf("the watch is not refused: %w", err)
		}
		return nil
	})
	other := stream("other")
	for i := range each {
		if m := ask(other, create); m.GetCanceled() {
			t.Fatalf("watch %d of another client: %v", i, m)
		}
	}
	third := stream("third")
	refused("more than the node takes", ask(third, create), "--max-watch-bytes")
	if m := ask(other, cancel); !m.GetCanceled() {
		t.Fatal(m)
	}
	if m := ask(third, create); m.GetCanceled() {
		t.Errorf("after a watch has ended: %v", m)
	}
}
