package kube_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// tap is a Service like balancer that reads the passing requests: it terminates TLS on both sides,
// with the protocol that the node chooses, and copies bytes. A node's death breaks the client's
// connection.
type tap struct {
	c     *cluster
	url   string
	nodes []*node
	turn  atomic.Uint64

	mu    sync.Mutex
	lists []string // guarded by mu; requests of lists, and of watches that begin with the state
	all   int      // guarded by mu; requests
}

// tap starts a tap in front of nodes.
func (c *cluster) tap(t *testing.T, nodes ...*node) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := &tap{c: c, url: "https://" + l.Addr().String(), nodes: nodes}
	cert := c.ca.IssueFor(t, "tap", time.Now().Add(-time.Hour), time.Now().Add(time.Hour)).Pair // rustls rejects year 1
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		l.Close()
		running.Wait()
	})
	trust := c.transport(t).TLSClientConfig
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { x.forward(ctx, client, cert, trust) })
		}
	})
	return x
}

// forward copies a connection to the next listening node, until one side closes.
func (x *tap) forward(ctx context.Context, client net.Conn, cert tls.Certificate, trust *tls.Config) {
	defer client.Close()
	var node *tls.Conn
	defer context.AfterFunc(ctx, func() { client.Close() })()
	secure := tls.Server(client, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		first := x.turn.Add(1)
		var err error
		for i := range x.nodes {
			n := x.nodes[(first+uint64(i))%uint64(len(x.nodes))]
			to := trust.Clone()
			to.NextProtos = hello.SupportedProtos
			if node, err = tls.Dial("tcp", n.kube, to); err == nil {
				own := &tls.Config{Certificates: []tls.Certificate{cert}}
				if chosen := node.ConnectionState().NegotiatedProtocol; chosen != "" {
					own.NextProtos = []string{chosen}
				}
				return own, nil
			}
		}
		return nil, err
	}})
	if err := secure.HandshakeContext(ctx); err != nil {
		if node != nil {
			node.Close()
		}
		return
	}
	defer node.Close()
	defer context.AfterFunc(ctx, func() { node.Close() })()
	requests, copied := io.Pipe()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer copied.Close()
	reading.Go(func() { x.read(bufio.NewReader(requests)) })
	done := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(node, io.TeeReader(secure, copied)) // until either side closes
		done <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(secure, node)
		done <- struct{}{}
	}()
	<-done
	client.Close()
	node.Close()
	copied.Close()
	<-done
}

// read reads the requests of a connection.
func (x *tap) read(r *bufio.Reader) {
	defer func() { _, _ = io.Copy(io.Discard, r) }() // a WebSocket, or the end
	if start, err := r.Peek(len(http2.ClientPreface)); err == nil && string(start) == http2.ClientPreface {
		_, _ = r.Discard(len(start))
		frames := http2.NewFramer(io.Discard, r)
		frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		for {
			frame, err := frames.ReadFrame()
			if err != nil {
				return
			}
			if head, ok := frame.(*http2.MetaHeadersFrame); ok {
				x.note(head.PseudoValue("method"), head.PseudoValue("path"))
			}
		}
	}
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		x.note(req.Method, req.RequestURI)
		if req.Header.Get("Upgrade") != "" {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
	}
}

func (x *tap) note(method, path string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all++
	u, err := url.Parse(path)
	if err != nil || method != http.MethodGet || !strings.HasSuffix(u.Path, "/configmaps") {
		return
	}
	query := u.Query()
	watch, _ := strconv.ParseBool(query.Get("watch")) // false without it
	version := query.Get("resourceVersion")
	if !watch || query.Get("sendInitialEvents") == "true" || version == "" || version == "0" {
		x.lists = append(x.lists, path)
	}
}

// listed returns the requests of lists so far.
func (x *tap) listed() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string(nil), x.lists...)
}
