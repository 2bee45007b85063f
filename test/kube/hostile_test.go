package kube_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

// hostileConn is an HTTP/2 connection on the level of frames that does not read.
type hostileConn struct {
	*http2.Framer
	token string
	head  bytes.Buffer
	enc   *hpack.Encoder
	next  uint32 // ID of the next stream
}

// hostileConn connects to a node. The connection ends with ctx.
func (c *cluster) hostileConn(ctx context.Context, at string) (*hostileConn, error) {
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: certtest.Pool(c.ca), NextProtos: []string{"h2"}}}
	conn, err := dialer.DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	h := &hostileConn{Framer: http2.NewFramer(conn, conn), token: c.token, next: 1}
	h.enc = hpack.NewEncoder(&h.head)
	if err := conn.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil { // a node that no longer reads has defended itself
		return nil, err
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	return h, h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
}

// request opens a stream with a request. With more, its body follows.
func (h *hostileConn) request(method, path, token string, more bool) error {
	const frame = 16 << 10
	h.head.Reset()
	for _, f := range [][2]string{
		{":method", method},
		{":scheme", "https"},
		{":path", path},
		{":authority", "node"},
		{"authorization", "Bearer " + token},
		{"accept", "application/json"},
		{"content-type", "application/json"},
	} {
		_ = h.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}) // to a buffer
	}
	block, id := h.head.Bytes(), h.next
	h.next += 2
	first := block[:min(len(block), frame)]
	err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: !more, EndHeaders: len(first) == len(block)})
	for block = block[len(first):]; err == nil && len(block) > 0; {
		part := block[:min(len(block), frame)]
		block = block[len(part):]
		err = h.WriteContinuation(id, len(block) == 0, part)
	}
	return err
}

// hostile is one kind of hostile client: its i-th request on a connection.
type hostile struct {
	name    string
	request func(h *hostileConn, conn, i int) error
}

func hostiles() []hostile {
	get := func(path string) func(h *hostileConn, conn, i int) error {
		return func(h *hostileConn, _, _ int) error { return h.request(http.MethodGet, path, h.token, false) }
	}
	return []hostile{
		{"watches with long selectors", func(h *hostileConn, conn, i int) error {
			terms := url.QueryEscape(fmt.Sprintf("app notin (%d.%d", conn, i)) + strings.Repeat(",a", 29_000) + ")"
			return h.request(http.MethodGet, "/api/v1/pods?watch=1&labelSelector="+terms, h.token, false)
		}},
		{"watches with the longest selectors of caches", func(h *hostileConn, conn, i int) error {
			terms := fmt.Sprintf("app notin (%d.%d", conn, i)
			for v := 0; len(terms) < 1_000; v++ {
				terms += fmt.Sprintf(",%x", v)
			}
			return h.request(http.MethodGet, "/api/v1/pods?watch=1&labelSelector="+url.QueryEscape(terms+")"), h.token, false)
		}},
		{"watches from the beginning that are not read", get("/api/v1/pods?watch=1&resourceVersion=0")},
		{"watches of large objects that are not read", get("/api/v1/configmaps?watch=1&resourceVersion=0")},
		{"lists that are not read", get("/api/v1/pods?resourceVersion=0")},
		{"lists with a selector that are not read", get("/api/v1/pods?resourceVersion=0&labelSelector=tier%3Dbackend")},
		{"answers of the apiserver that are not read", get("/openapi/v2")},
		{"bodies that do not end", func(h *hostileConn, _, _ int) error {
			id := h.next
			if err := h.request(http.MethodPost, "/api/v1/namespaces/default/configmaps", h.token, true); err != nil {
				return err
			}
			return h.WriteData(id, false, make([]byte, 4<<10))
		}},
		{"long tokens that are not valid", func(h *hostileConn, conn, i int) error {
			return h.request(http.MethodGet, "/api/v1/pods", fmt.Sprintf("%d.%d.", conn, i)+strings.Repeat("x", 60_000), false)
		}},
	}
}

// Clients that do not read, or send as much as permitted, cannot make a node use more memory than the bound
// for hostile clients of etcd's API, nor starve another client: it gets each event meanwhile, and probes
// succeed. With half the connections the bound is the same: the garbage of 64 MiB for which the collector
// waits (heapFloor of cmd/cachenode) does not depend on them.
func TestHostileClients(t *testing.T) {
	const most = 256 << 20
	conns := 16
	if testing.Short() {
		conns /= 2
	}
	c := newCluster(t)
	a := c.apiserver(t)
	core := c.clients(t, a.url, nil).CoreV1()
	each(t, 2_000, func(i int) error {
		_, err := core.Pods("default").Create(t.Context(), costPod(i), metav1.CreateOptions{})
		return err
	})
	each(t, 10, func(i int) error {
		large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", i)}, Data: map[string]string{"x": strings.Repeat("x", 900<<10)}}
		_, err := core.ConfigMaps("default").Create(t.Context(), large, metav1.CreateOptions{})
		return err
	})
	turn := 0
	for _, attack := range hostiles() {
		t.Run(attack.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := c.node(t, "x", []string{a.url}, append(c.proxy(t), "--kube-preload", "pods.v1,pods.v1/json,configmaps.v1/json")...)
			defer n.kill()
			w, err := c.clients(t, "https://"+n.kube, nil).CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pids := []int{n.process.PID()}
			rest, err := proc.Memory(pids)
			if err != nil {
				t.Fatal(err)
			}
			if err := proc.ResetPeaks(pids); err != nil {
				t.Fatal(err)
			}
			var failed atomic.Int64
			var others sync.WaitGroup
			defer others.Wait()
			defer cancel()
			others.Go(func() {
				for ctx.Err() == nil {
					if _, err := n.get(ctx, "/healthz"); err != nil && ctx.Err() == nil {
						failed.Add(1)
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
			var attackers sync.WaitGroup
			for i := range conns {
				attackers.Go(func() {
					h, err := c.hostileConn(ctx, n.kube)
					for k := 0; k < 250 && err == nil; k++ {
						err = attack.request(h, i, k)
					}
					if err != nil {
						t.Logf("connection %d: %v", i, err)
					}
				})
			}
			attackers.Wait()
			began := time.Now()
			for i := range 20 {
				turn++
				text := fmt.Sprint(turn)
				if _, err := core.Pods("default").Patch(ctx, costPodName(i), "application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"turn":%q}}}`, text), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				for got := ""; got != text; {
					select {
					case e, open := <-w.ResultChan():
						if !open {
							t.Fatal("the watch of another client has ended")
						}
						if o, ok := e.Object.(metav1.Object); ok {
							got = o.GetLabels()["turn"]
						}
					case <-time.After(time.Minute):
						t.Fatal("the event does not come to another client")
					}
				}
			}
			took := time.Since(began)
			peaks, err := proc.Peaks(pids)
			if err != nil {
				t.Fatal(err)
			}
			above := peaks[0] - rest
			t.Logf("%d MiB at rest, %d MiB more at the peak; 20 events in %v; %d failed probes", rest>>20, above>>20, took.Round(time.Millisecond), failed.Load())
			if above > most {
				t.Errorf("the node took %d MiB more than at rest, of %d", above>>20, most>>20)
			}
			if failed.Load() > 0 {
				t.Errorf("%d probes failed", failed.Load())
			}
		})
	}
}
