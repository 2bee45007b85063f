package placement_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/control/placement"
)

// Voters use mutual TLS if it is configured.
func TestVotersOverTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	certs := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}

	c := newCluster(t, false)
	c.edit = func(cfg *placement.Config) {
		cfg.ServerTLS = &tls.Config{Certificates: certs, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
		cfg.ClientTLS = func(raw net.Conn, _ string) (net.Conn, *tls.Config) {
			return raw, &tls.Config{Certificates: certs, RootCAs: pool, ServerName: "127.0.0.1"}
		}
	}
	nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3)}
	c.founded(nodes...)
	touch(t, nodes[0])
}
