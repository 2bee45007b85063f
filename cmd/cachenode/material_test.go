package main

import (
	"net"
	"testing"

	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
	"github.com/shardwatch/shardwatch/internal/node"
)

// The connections of a port with TLS are raw connections, as without TLS, below the layer that ends
// revoked connections.
func TestConnectionsWithTLSAreRaw(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	m := &material{client: new(tlsconf.Material)}
	l := m.listeners(node.Listeners{Client: inner}).Client
	peer, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, ok := c.(interface{ NetConn() net.Conn }).NetConn().(*rawconn.Conn); !ok {
		t.Errorf("the connection is a %T with a %T", c, c.(interface{ NetConn() net.Conn }).NetConn())
	}
}
