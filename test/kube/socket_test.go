package kube_test

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
)

// overSocket opens a watch over a WebSocket.
func (c *cluster) overSocket(t *testing.T, url string) *websocket.Conn {
	t.Helper()
	cfg, err := websocket.NewConfig("wss"+strings.TrimPrefix(url, "https"), url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.TlsConfig = &tls.Config{RootCAs: certtest.Pool(c.ca)}
	cfg.Header.Set("Authorization", "Bearer "+c.token)
	conn, err := cfg.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestWatchesOverWebSocketsEqual compares the messages of watches over WebSockets with an
// apiserver's, byte by byte. The node answers them itself, and ends them with a bookmark when it
// drains, before its process ends.
func TestWatchesOverWebSocketsEqual(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	direct := c.clients(t, a.url, nil)
	n := c.node(t, "a", []string{a.url}, append(c.proxy(t), "--drain-timeout", "5s", "--kube-preload", "configmaps.v1/json")...)
	r := rand.New(rand.NewPCG(27, 28))
	churn(t, direct, r, 20)
	start, err := direct.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=" + start.ResourceVersion
	urls := []string{path, path + "&labelSelector=parity%3D1"}
	var pairs [][2]*websocket.Conn
	for _, url := range urls {
		pairs = append(pairs, [2]*websocket.Conn{c.overSocket(t, "https://"+n.kube+url), c.overSocket(t, a.url+url)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if open := n.figure(ctx, "shardwatch_kube_watches"); open != float64(len(urls)) {
		t.Errorf("%v watches are served from caches, want %d", open, len(urls))
	}
	churn(t, direct, r, 60)
	end := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m-end", Labels: map[string]string{"parity": "1"}}}
	if _, err := direct.CoreV1().ConfigMaps("default").Create(ctx, end, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, pair := range pairs {
		var told [2][]string
		for side, conn := range pair {
			for {
				var message string
				if err := websocket.Message.Receive(conn, &message); err != nil {
					t.Fatal(err)
				}
				told[side] = append(told[side], strings.TrimSpace(message))
				if strings.Contains(message, `"m-end"`) {
					break
				}
			}
		}
		if !slices.Equal(told[0], told[1]) {
			t.Errorf("%s:\ngot  %s\nwant %s", urls[i], strings.Join(told[0], "\n"), strings.Join(told[1], "\n"))
		}
	}
	last := c.overSocket(t, "https://"+n.kube+path+"&allowWatchBookmarks=true")
	n.drain()
	var message, before string
	for {
		if err := websocket.Message.Receive(last, &message); err != nil {
			break
		}
		before = message
	}
	if !strings.Contains(before, `"BOOKMARK"`) {
		t.Errorf("the watch of a drained node ended with %q, want a bookmark", before)
	}
}
