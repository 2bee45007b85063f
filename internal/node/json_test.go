package node_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/credentials/insecure"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// ask sends a request of HTTP/1 and returns the answer.
func ask(t *testing.T, method, url, body string, header http.Header) (code int, answer string, got http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		if r.Header[name] = values; name == "Host" {
			r.Host = values[0]
		}
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// startBefore runs a node in front of an etcd in a separate process, and returns both.
func startBefore(t *testing.T, change func(*node.Config)) (c *cluster, etcd string, cli *clientv3.Client) {
	t.Helper()
	p := etcdtest.StartProcess(t)
	c = newCluster(t, 1, 1, change)
	c.etcdURL = "http://" + p.Endpoint()
	c.nodes[0].start()
	c.ready()
	return c, p.Endpoint(), atEtcd(t, p, "")
}

// atEtcd returns a client of an etcd, logged in as user; "" means without a login.
func atEtcd(t *testing.T, p *etcdtest.Process, user string) *clientv3.Client {
	t.Helper()
	cfg := clientv3.Config{Endpoints: []string{p.Endpoint()}, DialTimeout: patience}
	if user != "" {
		cfg.Username, cfg.Password = user, etcdtest.Password
	}
	cli, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// raw sends the header of a POST and the beginning of its body, and reads nothing.
func raw(t *testing.T, address, path string, length int, body string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10) //nolint:forcetypeassert // it is
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", path, address, length, body); err != nil {
		t.Error(err)
	}
	return conn
}

// Lists that clients do not read take no more memory than the budget.
func TestJSONListsThatAreNotReadAreBounded(t *testing.T) { // not parallel: it measures the process
	c, _, cli := startBefore(t, func(nc *node.Config) { shards(1, 1)(nc); nc.MaxClientBytes = 64 << 20 })
	value := strings.Repeat("v", 1<<20)
	for i := range 24 {
		if _, err := cli.Put(within(t), fmt.Sprintf("/list/%02d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	heap := func() int64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	list := fmt.Sprintf(`{"key":%q,"range_end":%q}`, b64("/list/"), b64("/list0"))
	inTxn := fmt.Sprintf(`{"success":[{"request_range":%s}]}`, list)
	before := heap()
	for range 12 {
		raw(t, c.nodes[0].clients, "/v3/kv/range", len(list), list)
		raw(t, c.nodes[0].clients, "/v3/kv/txn", len(inTxn), inTxn)
	}
	url := "http://" + c.nodes[0].clients
	testkit.Succeeds(t, "too much waits for clients", func() error {
		if code, answer, _ := ask(t, http.MethodPost, url+"/v3/kv/range", list, nil); code != http.StatusTooManyRequests || !strings.Contains(answer, "--max-client-bytes") {
			return fmt.Errorf("%d %.200s", code, answer)
		}
		return nil
	})
	// JSON has 12 MiB of the budget, and lists have 20 MiB; a single list may be larger.
	if cost := heap() - before; cost > 200<<20 {
		t.Errorf("24 clients that do not read cost %d MiB", cost>>20)
	}
	one := fmt.Sprintf(`{"key":%q}`, b64("/other"))
	if code, answer, _ := ask(t, http.MethodPost, url+"/v3/kv/range", one, nil); code != http.StatusTooManyRequests && code != http.StatusOK {
		t.Errorf("%d %s", code, answer)
	}
}

// A body of many empty objects costs memory in proportion to its size, for every sender.
func TestJSONBodiesCostTheirSize(t *testing.T) { // not parallel: it measures the process
	policed := startPoliced(t, policyHead+webMay)
	guarded, _ := startGuarded(t, 1)
	open := startCluster(t, 1, 1, shards(1, 1))
	open.ready()
	body := `{"compare":[{}` + strings.Repeat(",{}", 1<<20) + `]}`
	secure := &http.Client{Transport: &http.Transport{TLSClientConfig: policed.tls(who{}), DisableKeepAlives: true}}
	for name, c := range map[string]struct {
		client *http.Client
		url    string
		code   int
	}{
		"with an invalid token":   {secure, "https://" + policed.nodes[0].clients, http.StatusUnauthorized},
		"without a login at etcd": {http.DefaultClient, "http://" + guarded.nodes[0].clients, http.StatusBadRequest}, // etcd's InvalidArgument
		"no rights are needed":    {http.DefaultClient, "http://" + open.nodes[0].clients, http.StatusBadRequest},
	} {
		r, err := http.NewRequestWithContext(within(t), http.MethodPost, c.url+"/v3/kv/txn", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if c.client == secure {
			r.Header.Set("Authorization", "Bearer "+policed.token("web", -time.Hour))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		resp, err := c.client.Do(r)
		runtime.ReadMemStats(&after)
		// The node answers before it has read all; the client may see the reset that
		// follows first.
		if err == nil {
			if _ = resp.Body.Close(); resp.StatusCode != c.code {
				t.Errorf("%s: %d", name, resp.StatusCode)
			}
		} else if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("%s: %v", name, err)
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 32<<20 {
			t.Errorf("%s: a body of %d bytes costs %d", name, len(body), cost)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// Requests that never end do not block others, on any kind of connection.
func TestJSONRequestsThatNeverEndBlockNoOthers(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1, func(nc *node.Config) { shards(1, 1)(nc); nc.Server.MaxStreamsPerConnection = 10 })
	c.ready()
	for range 50 {
		raw(t, c.nodes[0].clients, "/v3/watch", 1<<20, `{"create_request":{"key":"YQ=="}}`)
		raw(t, c.nodes[0].clients, "/v3/kv/put", 1<<20, `{"key":`)
	}
	if code, answer, _ := ask(t, http.MethodPost, "http://"+c.nodes[0].clients+"/v3/kv/put", `{"key":"YQ==","value":"YQ=="}`, nil); code != http.StatusOK {
		t.Errorf("%d %s", code, answer)
	}
}

// Connections of the JSON API count as the identity's, from their handshake on, and have
// the rights of its certificate.
func TestJSONConnectionsCount(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, policyHead+strings.ReplaceAll(webMay, "watches: 3", "connections: 2"))
	cfg := p.tls(who{name: "web"})
	cfg.NextProtos = []string{"http/1.1"}
	var clients []*http.Client
	get := func() (int, error) {
		cl := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}}
		clients = append(clients, cl)
		resp, err := cl.Post("https://"+p.nodes[0].clients+"/v3/kv/range", "", strings.NewReader(`{"key":"L3dlYi8x"}`))
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Body.Close()
	}
	for range 2 {
		if code, err := get(); code != http.StatusOK || err != nil {
			t.Fatalf("%d, %v", code, err)
		}
	}
	if code, err := get(); err == nil {
		t.Errorf("a third connection: status %d", code)
	}
	clients[0].CloseIdleConnections()
	testkit.Succeeds(t, "a new connection is accepted after the first has ended", func() error {
		_, err := get()
		return err
	})
	for _, cl := range clients {
		cl.CloseIdleConnections()
	}
}

// A page in a browser does not reach a node on its user's machine: neither from another
// origin, nor by a DNS name of the page that resolves to the node.
func TestPagesDoNotReachANodeOnLoopback(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1, shards(1, 1))
	named := startCluster(t, 1, 1, func(nc *node.Config) { shards(1, 1)(nc); nc.Server.JSONHosts = []string{"*.example.org"} })
	c.ready()
	named.ready()
	put := `{"key":"YQ==","value":"YQ=="}`
	_, port, _ := net.SplitHostPort(c.nodes[0].clients)
	for _, q := range []struct {
		to     *cluster
		header http.Header
		code   int
	}{
		{c, nil, http.StatusOK},
		{c, http.Header{"Host": {"localhost:" + port}}, http.StatusOK},
		{c, http.Header{"Origin": {"http://evil.example.com"}}, http.StatusForbidden},
		{c, http.Header{"Sec-Fetch-Site": {"cross-site"}}, http.StatusForbidden},
		{c, http.Header{"Sec-Fetch-Site": {"same-origin"}}, http.StatusOK},
		{c, http.Header{"Host": {"evil.example.com:" + port}}, http.StatusMisdirectedRequest},
		{c, http.Header{"Host": {"localhost.example.com"}}, http.StatusMisdirectedRequest},
		{named, http.Header{"Host": {"db.example.org"}}, http.StatusOK},
		{named, http.Header{"Host": {"example.org"}}, http.StatusMisdirectedRequest},
		{named, http.Header{"Host": {"evilexample.org"}}, http.StatusMisdirectedRequest},
	} {
		url := "http://" + q.to.nodes[0].clients
		if code, answer, _ := ask(t, http.MethodPost, url+"/v3/kv/put", put, q.header); code != q.code {
			t.Errorf("%v: %d %s", q.header, code, answer)
		} else if code == http.StatusMisdirectedRequest && !strings.Contains(answer, "--json-hosts") {
			t.Errorf("the answer does not name the flag: %s", answer)
		}
		header := q.header.Clone()
		if _, fetch := header["Sec-Fetch-Site"]; fetch {
			continue
		}
		conn, resp, err := websocket.DefaultDialer.DialContext(within(t), "ws"+strings.TrimPrefix(url, "http")+"/v3/watch", header)
		if code := q.code; code != http.StatusOK && (!errors.Is(err, websocket.ErrBadHandshake) || resp.StatusCode != code) || code == http.StatusOK && err != nil {
			t.Errorf("WebSocket, %v: %v", q.header, err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

// sameJSON removes the expected differences between two processes.
func sameJSON(text string) any {
	var v map[string]any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	strip(v)
	return v
}

func strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{"member_id", "raft_term", "revision"} {
			delete(v, key)
		}
		for _, inner := range v {
			strip(inner)
		}
	case []any:
		for _, inner := range v {
			strip(inner)
		}
	}
}

// A WebSocket works as at etcd: messages in both directions, with many watches.
func TestWebSocketsAreAsAtEtcd(t *testing.T) {
	t.Parallel()
	c, etcd, cli := startBefore(t, shards(1, 1))
	first, err := cli.Put(within(t), "/ws/a", "1")
	if err != nil {
		t.Fatal(err)
	}
	type talk struct {
		conn     *websocket.Conn
		protocol string
	}
	talks := map[string]talk{}
	for name, address := range map[string]string{"etcd": etcd, "node": c.nodes[0].clients} {
		d := websocket.Dialer{Subprotocols: []string{"Bearer", "token"}}
		conn, resp, err := d.DialContext(within(t), "ws://"+address+"/v3/watch", nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer conn.Close()
		talks[name] = talk{conn, resp.Header.Get("Sec-Websocket-Protocol")}
	}
	if e, n := talks["etcd"].protocol, talks["node"].protocol; e != n {
		t.Errorf("subprotocols: etcd %q, node %q", e, n)
	}
	say := func(text string) {
		t.Helper()
		for name, x := range talks {
			if err := x.conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	hear := func() {
		t.Helper()
		heard := map[string]any{}
		for name, x := range talks {
			_ = x.conn.SetReadDeadline(time.Now().Add(patience))
			kind, b, err := x.conn.ReadMessage()
			if err != nil || kind != websocket.TextMessage {
				t.Fatalf("%s: %v", name, err)
			}
			heard[name] = sameJSON(string(b))
		}
		if !reflect.DeepEqual(heard["etcd"], heard["node"]) {
			t.Errorf("etcd: %v\nnode: %v", heard["etcd"], heard["node"])
		}
	}
	say(fmt.Sprintf(`{"create_request":{"key":%q,"range_end":%q,"start_revision":"%d"}}`, b64("/ws/"), b64("/ws0"), first.Header.Revision))
	hear() // created
	hear() // the first event
	say(fmt.Sprintf(`{"create_request":{"key":%q,"watch_id":"7"}} {"cancel_request":{"watch_id":"7"}}`, b64("/x")))
	hear()
	hear()
	if _, err := cli.Put(within(t), "/ws/b", strings.Repeat("x", 100_000)); err != nil {
		t.Fatal(err)
	}
	hear()
	say(`{"create_request":{"key":"YQ==","start_revision":"-1"}}`)
	hear() // refused
}

// A WebSocket carries a response, and each part of a watch, as one message of any size.
func TestLargeAnswersAreOneMessageOfAWebSocket(t *testing.T) {
	t.Parallel()
	c, _, cli := startBefore(t, shards(1, 1))
	value := strings.Repeat("value", 60_000)
	put, err := cli.Put(within(t), "/ws/large", value)
	if err != nil {
		t.Fatal(err)
	}
	for path, request := range map[string]string{
		"/v3/kv/range": fmt.Sprintf(`{"key":%q}`, b64("/ws/large")),
		"/v3/watch":    fmt.Sprintf(`{"create_request":{"key":%q,"start_revision":%d}}`, b64("/ws/large"), put.Header.Revision),
	} {
		conn, _, err := websocket.DefaultDialer.DialContext(within(t), "ws://"+c.nodes[0].clients+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.WriteMessage(websocket.TextMessage, []byte(request)); err != nil {
			t.Fatal(err)
		}
		for found := false; !found; {
			_, b, err := conn.ReadMessage()
			if err != nil || !json.Valid(b) {
				t.Fatalf("%s: %d bytes, %.100s: %v", path, len(b), b, err)
			}
			found = strings.Contains(string(b), b64(value))
		}
	}
}

// A WebSocket ends with its client's connection, and with the node's drain.
func TestWebSocketsEnd(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1, shards(1, 1))
	c.ready()
	dial := func() *websocket.Conn {
		conn, _, err := websocket.DefaultDialer.DialContext(within(t), "ws://"+c.nodes[0].clients+"/v3/watch", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.WriteMessage(websocket.TextMessage, []byte(`{"create_request":{"key":"YQ=="}}`)); err != nil {
			t.Fatal(err)
		}
		if _, b, err := conn.ReadMessage(); err != nil || !strings.Contains(string(b), `"created":true`) {
			t.Fatalf("%s, %v", b, err)
		}
		return conn
	}
	gone := dial()
	stays := dial()
	watches := func(want int) {
		t.Helper()
		testkit.Succeeds(t, fmt.Sprintf("%d watches are open", want), func() error {
			list, err := shardwatchv1.NewAdminServiceClient(c.nodes[0].dialRaw(insecure.NewCredentials())).ListWatchers(within(t), &shardwatchv1.ListWatchersRequest{})
			if err != nil {
				return err
			}
			m, err := list.Recv()
			if got := len(m.GetWatchers()); got != want {
				return fmt.Errorf("%d: %w", got, err)
			}
			return nil
		})
	}
	watches(2)
	_ = gone.Close()
	watches(1)
	large := dial()
	_ = large.WriteMessage(websocket.TextMessage, bytes.Repeat([]byte(" "), 1<<20)) // it may be cut off before its end
	_ = large.SetReadDeadline(time.Now().Add(patience))
	if _, _, err := large.ReadMessage(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after a message of 1 MiB: %v", err)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		c.nodes[0].drain()
	}()
	_ = stays.SetReadDeadline(time.Now().Add(patience))
	if _, b, err := stays.ReadMessage(); err != nil || !strings.Contains(string(b), `"error"`) {
		t.Errorf("the drain: %s, %v", b, err)
	}
	<-drained
}

// /livez, /readyz, /health and /version answer like etcd's: to everyone, even with
// etcd's authentication on. They report a healthy node.
func TestProbesAreAsAtEtcd(t *testing.T) {
	t.Parallel()
	p := etcdtest.StartProcess(t)
	c := newCluster(t, 1, 1, shards(1, 1))
	c.account, c.etcdURL = "root", "http://"+p.Endpoint()
	c.nodes[0].start()
	c.ready()
	inOrder := func(text string) string { // etcd returns the checks in any order
		lines := strings.Split(text, "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	compare := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			method := http.MethodGet
			if m, p, ok := strings.Cut(path, " "); ok {
				method, path = m, p
			}
			wantCode, want, wantHeader := ask(t, method, "http://"+p.Endpoint()+path, "", nil)
			testkit.Succeeds(t, method+" "+path, func() error { // probes share answers, for a second
				code, got, header := ask(t, method, "http://"+c.nodes[0].clients+path, "", nil)
				if code != wantCode || inOrder(got) != inOrder(want) || header.Get("Allow") != wantHeader.Get("Allow") {
					return fmt.Errorf("%d %q, etcd says %d %q", code, got, wantCode, want)
				}
				return nil
			})
		}
	}
	compare("/livez", "/livez?verbose", "/livez/serializable_read", "/livez/data_corruption", "/livez?exclude=serializable_read&verbose",
		"/readyz", "/readyz?verbose", "/readyz/linearizable_read?verbose", "/readyz/non_learner", "/readyz/none", "/readyz?exclude=non_learner&exclude=x&verbose",
		"/health", "/health?serializable=true", "POST /livez", "POST /readyz/serializable_read", "POST /health", "/version")
	cli := atEtcd(t, p, "")
	members, err := cli.MemberList(within(t))
	if err != nil {
		t.Fatal(err)
	}
	compareAlarmed := func(by *clientv3.Client) {
		t.Helper()
		maintenance := etcdserverpb.NewMaintenanceClient(by.ActiveConnection())
		for _, kind := range []etcdserverpb.AlarmType{etcdserverpb.AlarmType_NOSPACE, etcdserverpb.AlarmType_CORRUPT} {
			alarm := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: members.Members[0].ID, Alarm: kind}
			if _, err := maintenance.Alarm(within(t), alarm); err != nil {
				t.Fatal(err)
			}
			compare("/livez", "/readyz", "/health", "/health?serializable=true", "/health?exclude="+kind.String())
			alarm.Action = etcdserverpb.AlarmRequest_DEACTIVATE
			if _, err := maintenance.Alarm(within(t), alarm); err != nil {
				t.Fatal(err)
			}
		}
	}
	compareAlarmed(cli)
	etcdtest.Permit(t, cli, "root")
	if _, err := cli.AuthEnable(within(t)); err != nil {
		t.Fatal(err)
	}
	testkit.Succeeds(t, "the node has learned that authentication is on", func() error {
		if code, body, _ := ask(t, http.MethodPost, "http://"+c.nodes[0].clients+"/v3/kv/range", `{"key":"YQ==","serializable":true}`, nil); code == http.StatusOK {
			return fmt.Errorf("a caller without a login reads %s", body)
		}
		return nil
	})
	compare("/version", "/readyz?verbose")
	compareAlarmed(atEtcd(t, p, "root"))
	compare("/health", "/health?serializable=true")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/health":                   "RANGE ERROR:etcdserver: request timed out",
		"/health?serializable=true": "RANGE ERROR:etcdserver: no leader",
		"/livez":                    "[-]serializable_read failed: etcdserver: no leader",
		"/readyz/linearizable_read": "[-]linearizable_read failed: etcdserver: request timed out",
	} {
		testkit.Succeeds(t, path+" without etcd", func() error {
			if code, body, _ := ask(t, http.MethodGet, "http://"+c.nodes[0].clients+path, "", nil); code != http.StatusServiceUnavailable || !strings.Contains(body, want) {
				return fmt.Errorf("%d %q, want %q", code, body, want)
			}
			return nil
		})
	}
	if code, body, _ := ask(t, http.MethodGet, "http://"+c.nodes[0].clients+"/version", "", nil); code != http.StatusOK {
		t.Errorf("/version without etcd: %d %s", code, body)
	}
}

// Lists in JSON equal etcd's, for any content.
func TestJSONListsAreEtcds(t *testing.T) {
	t.Parallel()
	c, etcd, cli := startBefore(t, shards(2, 1))
	for i := range 200 {
		if _, err := cli.Put(within(t), fmt.Sprintf("/j/%03d", i), strings.Repeat("\x00\xff", i*i%7000)); err != nil {
			t.Fatal(err)
		}
	}
	for _, body := range []string{
		`{"key":"L2ov","range_end":"L2ow"}`, `{"key":"L2ov","range_end":"L2ow","limit":"3"}`, `{"key":"L2ov","range_end":"L2ow","count_only":true}`,
		`{"key":"L2ov","range_end":"L2ow","keys_only":true,"sort_order":"DESCEND"}`, `{"key":"bm9uZQ=="}`, `{}`, ``, `{"key":1}`, `{"key":"L2ov","unknown":{}}`, `[`,
	} {
		wantCode, want, _ := ask(t, http.MethodPost, "http://"+etcd+"/v3/kv/range", body, nil)
		code, got, header := ask(t, http.MethodPost, "http://"+c.nodes[0].clients+"/v3/kv/range", body, nil)
		if code != wantCode || code == http.StatusOK && !reflect.DeepEqual(sameJSON(got), sameJSON(want)) || !strings.HasPrefix(header.Get("Content-Type"), "application/json") {
			t.Errorf("%s: %d %.300s, etcd says %d %.300s", body, code, got, wantCode, want)
		}
	}
}
