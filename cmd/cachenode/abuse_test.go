package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// victim is a separate node, with TLS for clients, that the test attacks over its
// sockets.
type victim struct {
	t                          *testing.T
	ca                         *certtest.CA
	client, raft, gossip, http string
	log                        *syncBuffer
	friend                     *client.Client
	puts                       int
}

const (
	victimStreams     = 100
	victimConnections = 40
)

func newVictim(t *testing.T) *victim {
	t.Helper()
	ca := certtest.NewCA(t, "ca")
	files := certtest.NewFiles(t, ca.Issue(t, "server"), ca)
	v := &victim{t: t, ca: ca, client: free(t), raft: free(t), gossip: free(t), http: free(t), log: &syncBuffer{}}
	keys := t.TempDir() + "/keys"
	if err := os.WriteFile(keys, []byte(newKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	args := []string{
		"run", "--name", "victim", "--data-dir", t.TempDir(), "--bootstrap-expect", "1", "--etcd", etcdtest.Start(t).Endpoint(),
		"--listen", v.client, "--peer-listen", free(t), "--raft-listen", v.raft, "--gossip-listen", v.gossip, "--http-listen", v.http,
		"--tls-cert", files.Cert, "--tls-key", files.Key, "--gossip-key-file", keys,
		"--max-streams-per-connection", fmt.Sprint(victimStreams), "--max-connections", fmt.Sprint(victimConnections),
	}
	go func() { ended <- execute(ctx, process{hostname: os.Hostname, stdout: v.log, stderr: v.log}, args) }()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitDone || t.Failed() {
			t.Errorf("exit code %d:\n%s", code, v.log)
		}
	})
	if !awaitReady(t.Context(), []string{"http://" + v.http + "/readyz"}) {
		t.Fatal("not ready")
	}
	v.friend = v.connect()
	v.serves()
	return v
}

// connect returns an ordinary client.
func (v *victim) connect() *client.Client {
	v.t.Helper()
	c, err := client.New(client.Config{Endpoints: []string{v.client}, RetryFor: time.Minute, TLS: &tls.Config{RootCAs: certtest.Pool(v.ca)}})
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = c.Close() })
	return c
}

// serves checks that the node still serves clients.
func (v *victim) serves() {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	defer cancel()
	v.puts++
	if _, err := v.friend.Put(ctx, "/a", fmt.Append(nil, v.puts)); err != nil {
		v.t.Fatal(err)
	}
	if r, err := v.friend.Get(ctx, "/a"); err != nil || string(r.KV.Value) != fmt.Sprint(v.puts) {
		v.t.Fatalf("%+v, %v", r, err)
	}
}

// attacker is a connection that speaks HTTP/2 frame by frame.
type attacker struct {
	*http2.Framer
	t    *testing.T
	conn net.Conn
	out  bytes.Buffer // frames to be sent
	head bytes.Buffer
	enc  *hpack.Encoder
}

func (v *victim) attack(t *testing.T) *attacker {
	t.Helper()
	a, err := v.tryAttack(t)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// tryAttack is attack, but returns the error if the node refuses the connection.
func (v *victim) tryAttack(t *testing.T) (*attacker, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", v.client, &tls.Config{RootCAs: certtest.Pool(v.ca), NextProtos: []string{"h2"}})
	if err != nil {
		return nil, err
	}
	a := &attacker{t: t, conn: conn}
	t.Cleanup(func() { _ = conn.Close() })
	a.enc = hpack.NewEncoder(&a.head)
	a.Framer = http2.NewFramer(&a.out, conn)
	a.out.WriteString(http2.ClientPreface)
	a.frame(a.WriteSettings())
	if err := a.send(); err != nil {
		return nil, err
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := a.ReadFrame(); err != nil { // the server's settings: the handshake is complete
		return nil, err
	}
	return a, nil
}

func (a *attacker) frame(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// send sends the pending frames. It may take a minute: a server that defends itself
// stops reading.
func (a *attacker) send() error {
	_ = a.conn.SetWriteDeadline(time.Now().Add(time.Minute))
	_, err := a.out.WriteTo(a.conn)
	return err
}

// headers returns the header block of a watch.
func (a *attacker) headers(more ...string) []byte {
	a.head.Reset()
	all := append([]string{
		":method", "POST", ":scheme", "https", ":path", "/shardwatch.v1.CacheService/Watch", ":authority", "victim",
		"content-type", "application/grpc", "te", "trailers",
	}, more...)
	for i := 0; i < len(all); i += 2 {
		a.frame(a.enc.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}))
	}
	return bytes.Clone(a.head.Bytes())
}

// discard reads and drops all frames, until the connection ends.
func (a *attacker) discard() {
	_ = a.conn.SetReadDeadline(time.Time{})
	go func() { _, _ = io.Copy(io.Discard, a.conn) }()
}

// until reads frames until ok returns true, or until the connection ends with an error.
func (a *attacker) until(ok func(http2.Frame) bool) error {
	_ = a.conn.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		f, err := a.ReadFrame()
		if err != nil {
			return err
		}
		if ok(f) {
			return nil
		}
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// An attacker without a certificate or a password does not stop the node from
// serving others. docs/security.md has a line for each part.
func TestAbuse(t *testing.T) {
	if testing.Short() {
		t.Skip("runs etcd, and floods a node")
	}
	v := newVictim(t)
	// Checked at the end, after its handshake timeout.
	halfOpen, err := net.Dial("tcp", v.client)
	if err != nil {
		t.Fatal(err)
	}
	defer halfOpen.Close()

	t.Run("rapid reset", v.rapidReset)
	t.Run("ping flood", v.pingFlood)
	t.Run("settings flood", v.settingsFlood)
	t.Run("headers without end", v.headersWithoutEnd)
	t.Run("huge headers", v.hugeHeaders)
	t.Run("requests without an end", v.requestsWithoutEnd)
	t.Run("half-open handshakes", v.halfOpenHandshakes)
	t.Run("too many connections", v.tooManyConnections)
	t.Run("probes that are kept open", v.probesKeptOpen)
	t.Run("raft", v.raftPort)
	t.Run("gossip", v.gossipPort)
	t.Run("an unfinished handshake", func(t *testing.T) {
		_ = halfOpen.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := halfOpen.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("still open: %v", err)
		}
	})
}

// Connections that request /healthz and stay open do not block probes.
func (v *victim) probesKeptOpen(t *testing.T) {
	request := []byte("GET /healthz HTTP/1.1\r\nHost: victim\r\n\r\n")
	answer := make([]byte, 12)
	for range 600 {
		c := dialMany(t, v.http, 1, request)[0]
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "HTTP/1.1 200" {
			t.Fatalf("%q, %v", answer, err)
		}
	}
	if !awaitReady(t.Context(), []string{"http://" + v.http + "/readyz"}) {
		t.Error("the probe fails")
	}
}

// CVE-2023-44487: streams that are reset at once do not count as open, but each has
// a handler. gRPC runs no more handlers than streams may be open.
func (v *victim) rapidReset(t *testing.T) {
	a := v.attack(t)
	a.discard()
	before, peak := runtime.NumGoroutine(), 0
	for id := uint32(1); id < 40_000; id += 2 {
		a.frame(a.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: a.headers(), EndHeaders: true}))
		a.frame(a.WriteRSTStream(id, http2.ErrCodeCancel))
		if id%512 == 1 {
			if err := a.send(); err != nil {
				break // the node has closed the connection
			}
			peak = max(peak, runtime.NumGoroutine())
		}
	}
	// A stream has its handler and few helpers.
	if most := before + 20*victimStreams; peak > most {
		t.Errorf("%d goroutines, at the start %d", peak, before)
	}
	v.serves()
}

// Incomplete requests are held in memory before any limit of calls applies.
func (v *victim) requestsWithoutEnd(t *testing.T) {
	const conns, size, piece = 2, 2<<20 - 1, 16 << 10
	before, peak, sent := heap(), uint64(0), 0
	part := make([]byte, piece)
	for range conns {
		a := v.attack(t)
		a.discard()
		for i := range uint32(victimStreams) {
			a.frame(a.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: a.headers(), EndHeaders: true}))
			a.frame(a.WriteData(2*i+1, false, binary.BigEndian.AppendUint32([]byte{0}, size)))
		}
		for at := piece; at < size; at += piece {
			for i := range uint32(victimStreams) {
				a.frame(a.WriteData(2*i+1, false, part))
			}
			if a.send() != nil {
				break // the node has closed the connection
			}
			sent += victimStreams * piece
			peak = max(peak, heap())
		}
	}
	if grown := int64(peak) - int64(before); grown > 160<<20 {
		t.Errorf("the heap has grown by %d MiB, %d MiB were sent", grown>>20, sent>>20)
	}
	v.serves()
}

func (v *victim) pingFlood(t *testing.T) {
	a := v.attack(t)
	for range 1000 {
		a.frame(a.WritePing(false, [8]byte{1}))
	}
	_ = a.send() // the node may close the connection meanwhile
	err := a.until(func(f http2.Frame) bool {
		g, ok := f.(*http2.GoAwayFrame)
		return ok && g.ErrCode == http2.ErrCodeEnhanceYourCalm
	})
	if err != nil {
		t.Errorf("the node did not send ENHANCE_YOUR_CALM: %v", err)
	}
	v.serves()
}

// Each frame of settings must be acknowledged. The node stops reading from a client
// that does not read the answers.
func (v *victim) settingsFlood(t *testing.T) {
	a := v.attack(t)
	before := heap()
	_ = a.conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
	for range 100 {
		for range 10_000 {
			a.frame(a.WriteSettings())
		}
		if _, err := a.out.WriteTo(a.conn); err != nil {
			break // the node does not read any more
		}
	}
	if grown := int64(heap()) - int64(before) - int64(a.out.Cap()); grown > 32<<20 {
		t.Errorf("%d MiB for unread answers", grown>>20)
	}
	v.serves()
}

// CVE-2023-45288: a header without an end.
func (v *victim) headersWithoutEnd(t *testing.T) {
	a := v.attack(t)
	a.discard()
	const most = 8 << 20
	sent := 0
	a.frame(a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.headers()}))
	for sent < most {
		fragment := a.headers("x", strings.Repeat("y", 8<<10))
		a.frame(a.WriteContinuation(1, false, fragment))
		if err := a.send(); err != nil {
			break
		}
		sent += len(fragment)
	}
	if sent >= most {
		t.Errorf("%d MiB of one header were accepted", sent>>20)
	}
	v.serves()
}

func (v *victim) hugeHeaders(t *testing.T) {
	a := v.attack(t)
	block := a.headers("x", strings.Repeat("0123456789abcdef", 6<<10)) // 96 KiB
	a.frame(a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:1000]}))
	for block = block[1000:]; len(block) > 0; {
		n := min(len(block), 16<<10)
		a.frame(a.WriteContinuation(1, n == len(block), block[:n]))
		block = block[n:]
	}
	_ = a.send() // the node may close the connection meanwhile
	err := a.until(func(f http2.Frame) bool {
		_, reset := f.(*http2.RSTStreamFrame)
		_, away := f.(*http2.GoAwayFrame)
		return reset || away
	})
	if os.IsTimeout(err) {
		t.Error("96 KiB of headers were accepted")
	}
	v.serves()
}

// dialMany opens connections that send only hello.
func dialMany(t *testing.T, address string, n int, hello []byte) []net.Conn {
	t.Helper()
	var out []net.Conn
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = c.Write(hello) // c may be closed by then
		out = append(out, c)
	}
	return out
}

// closed reports whether the peer closes c within a minute.
func closed(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		if _, err := c.Read(make([]byte, 1024)); err != nil {
			return !os.IsTimeout(err)
		}
	}
}

func (v *victim) halfOpenHandshakes(t *testing.T) {
	all := dialMany(t, v.client, 1100, []byte{0x16, 3, 1}) // the beginning of a TLS record
	if !closed(all[0]) {
		t.Error("the first of 1,100 half-open handshakes is still open")
	}
	late := v.connect() // a new connection
	if _, err := late.Get(t.Context(), "/a"); err != nil {
		t.Errorf("a new client among half-open handshakes: %v", err)
	}
	v.serves()
}

func (v *victim) tooManyConnections(t *testing.T) {
	var all []*attacker
	for range victimConnections {
		a, err := v.tryAttack(t)
		if err != nil {
			break // over the limit
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		t.Fatal("no connection was accepted")
	}
	one := dialMany(t, v.client, 1, nil)[0]
	if !closed(one) {
		t.Errorf("more connections than --max-connections were accepted")
	}
	v.serves() // existing connections stay
	if !strings.Contains(v.log.String(), "see --max-connections") {
		t.Error("the log does not name the flag")
	}
	for _, a := range all {
		_ = a.conn.Close()
	}
	c := v.connect()
	if _, err := c.Get(t.Context(), "/a"); err != nil {
		t.Errorf("after the connections have ended: %v", err)
	}
}

func (v *victim) raftPort(t *testing.T) {
	if all := dialMany(t, v.raft, 80, nil); !closed(all[0]) {
		t.Error("the first of 80 silent connections is still open")
	}
	if one := dialMany(t, v.raft, 1, []byte("GET / HTTP/1.1\r\n\r\n"))[0]; !closed(one) {
		t.Error("a connection that does not speak raft is still open")
	}
	v.serves()
}

func (v *victim) gossipPort(t *testing.T) {
	before := heap()
	// The header of a large encrypted message.
	hello := binary.BigEndian.AppendUint32([]byte{10}, 19<<20)
	all := dialMany(t, v.gossip, 80, append(hello, make([]byte, 1<<20)...))
	if !closed(all[0]) {
		t.Error("the first of 80 incomplete messages' connections is still open")
	}
	if grown := int64(heap()) - int64(before); grown > 512<<20 {
		t.Errorf("%d MiB for unauthenticated connections", grown>>20)
	}
	udp, err := net.Dial("udp", v.gossip)
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	lines := strings.Count(v.log.String(), "\n")
	for i := range 2000 {
		if _, err := fmt.Fprintf(udp, "garbage %d", i); err != nil && !errors.Is(err, io.ErrShortWrite) {
			break // the socket's buffer is full
		}
	}
	v.serves()
	if n := strings.Count(v.log.String(), "\n") - lines; n > 50 {
		t.Errorf("%d log lines for garbage packets", n)
	}
}
