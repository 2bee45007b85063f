package kube_test

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
)

// All informers of a cluster may connect to a node at the same time after another one has died. None
// is cut before its handshake: its reflector would list again.
func TestNoConnectionIsCutInACrowd(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	n := c.node(t, "x", []string{a.url}, c.proxy(t)...)
	conns := make([]net.Conn, 1_500)
	for i := range conns {
		conn, err := net.Dial("tcp", n.kube)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	secure := &tls.Config{RootCAs: certtest.Pool(c.ca), ServerName: "127.0.0.1", NextProtos: []string{"h2"}}
	each(t, len(conns), func(i int) error {
		if err := conns[i].SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		return tls.Client(conns[i], secure).Handshake()
	})
}
