package tlsconf_test

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
)

// wrapped is a connection that another package has wrapped.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

// port accepts connections through a tracking listener, and returns the server's ends after
// their handshakes.
type port struct {
	net.Listener
	taken chan *tls.Conn
}

func open(t *testing.T, listener func(net.Listener) net.Listener, config *tls.Config) *port {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &port{listener(l), make(chan *tls.Conn)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			raw, err := p.Accept()
			if err != nil {
				return
			}
			c := tls.Server(wrapped{raw}, config)
			if err := c.Handshake(); err != nil {
				_ = c.Close()
				c = nil
			}
			p.taken <- c
		}
	}()
	t.Cleanup(func() {
		_ = p.Close()
		<-ended
	})
	return p
}

// dial returns both ends of a connection, or errRefused if the server refuses it.
func (p *port) dial(t *testing.T, config *tls.Config) (client, server *tls.Conn, err error) {
	t.Helper()
	raw, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, config)
	err = c.Handshake()
	t.Cleanup(func() { _ = c.Close() })
	s := <-p.taken
	if s == nil {
		return nil, nil, errors.Join(errRefused, err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return c, s, err
}

var errRefused = errors.New("refused")

// stands reports whether a byte passes from one end to the other.
func stands(from, to *tls.Conn) bool {
	if _, err := from.Write([]byte{1}); err != nil {
		return false
	}
	_, err := io.ReadFull(to, make([]byte, 1))
	return err == nil
}

// A revoked certificate opens no connection, and the connections that it has opened end;
// other connections continue. A file that is no revocation list of the CA changes nothing.
func TestARevokedCertificateEndsItsConnections(t *testing.T) {
	ca, other := certtest.NewCA(t, "ca"), certtest.NewCA(t, "other")
	good, bad := ca.Issue(t, "good", "n2"), ca.Issue(t, "bad", "n3")
	crl := filepath.Join(t.TempDir(), "crl.pem")
	write := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(crl, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(ca.Revoke(t))
	f := certtest.NewFiles(t, ca.Issue(t, "server", "n1"), ca)
	named := names
	named.CRL = "--tls-client-crl"
	m, err := tlsconf.Load(tlsconf.Files{Cert: f.Cert, Key: f.Key, CA: f.CA, CRL: crl}, named)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := m.Peer("n1", tlsconf.SANs{"n1", "n2", "n3"})
	if err != nil {
		t.Fatal(err)
	}
	config := func(l certtest.Leaf) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: certtest.Pool(ca), ServerName: "localhost", Certificates: []tls.Certificate{l.Pair}}
	}
	type pair struct{ client, server *tls.Conn }
	ports := map[string]*port{"clients": open(t, m.Listener, server(t, m)), "peers": open(t, peer.Listener, peer.Server())}
	stay, go1 := make(map[string]pair), make(map[string]pair)
	for name, p := range ports {
		for to, l := range map[*map[string]pair]certtest.Leaf{&stay: good, &go1: bad} {
			c, s, err := p.dial(t, config(l))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			(*to)[name] = pair{c, s}
		}
	}
	// Outgoing connections: to nodes with one of the two certificates.
	any := func(l certtest.Leaf) *port {
		return open(t, func(l net.Listener) net.Listener { return l }, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{l.Pair}, ClientAuth: tls.RequireAnyClientCert})
	}
	out := func(p *port) (pair, error) {
		t.Helper()
		raw, err := net.Dial("tcp", p.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		seen, c := peer.Client(raw, "")
		client := tls.Client(seen, c)
		t.Cleanup(func() { _ = client.Close() })
		err = client.Handshake()
		server := <-p.taken
		if server == nil {
			return pair{}, errors.Join(errRefused, err)
		}
		t.Cleanup(func() { _ = server.Close() })
		return pair{client, server}, err
	}
	goodNode, badNode := any(good), any(bad)
	for to, p := range map[*map[string]pair]*port{&stay: goodNode, &go1: badNode} {
		var err error
		if (*to)["dialled"], err = out(p); err != nil {
			t.Fatal(err)
		}
	}

	for what, text := range map[string][]byte{
		"of another CA": other.Revoke(t, bad), "no list": []byte("none"), "a certificate": ca.PEM,
	} {
		write(text)
		if err := m.Reload(); err == nil || !strings.Contains(err.Error(), "--tls-client-crl: "+crl) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for name, c := range go1 {
		if !stands(c.client, c.server) {
			t.Errorf("%s: ended before its certificate is revoked", name)
		}
	}
	block, _ := pem.Decode(ca.Revoke(t, bad))
	for what, text := range map[string][]byte{"PEM": append(ca.Revoke(t), ca.Revoke(t, bad)...), "DER": block.Bytes} {
		write(text)
		if err := m.Reload(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for name, c := range go1 {
			if stands(c.server, c.client) || stands(c.client, c.server) {
				t.Errorf("%s, %s: the connection continues", what, name)
			}
		}
		for name, c := range stay {
			if !stands(c.client, c.server) {
				t.Errorf("%s, %s: another connection ended", what, name)
			}
		}
		for name, p := range ports {
			if _, _, err := p.dial(t, config(bad)); !errors.Is(err, errRefused) {
				t.Errorf("%s: the %s port accepts the revoked certificate: %v", what, name, err)
			}
			if _, _, err := p.dial(t, config(good)); err != nil {
				t.Errorf("%s: the %s port refuses another certificate: %v", what, name, err)
			}
		}
		if _, err := out(badNode); err == nil || !strings.Contains(err.Error(), "is revoked") {
			t.Errorf("%s: dialed a node with the revoked certificate: %v", what, err)
		}
		if _, err := out(goodNode); err != nil {
			t.Errorf("%s: cannot dial another node: %v", what, err)
		}
	}
	write(ca.Revoke(t))
	if err := m.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ports["clients"].dial(t, config(bad)); err != nil {
		t.Errorf("no longer revoked: %v", err)
	}
}

func TestAListNeedsACA(t *testing.T) {
	crl := filepath.Join(t.TempDir(), "crl.pem")
	named := names
	named.CRL = "--tls-client-crl"
	_, err := tlsconf.Load(tlsconf.Files{CRL: crl}, named)
	if err == nil || !strings.Contains(err.Error(), "--tls-client-crl is given but --tls-client-ca is not") || !strings.Contains(err.Error(), crl+": no such file") {
		t.Errorf("got %v", err)
	}
}

// If an allowed name contains the node's name, a node's certificate is valid for that node only.
func TestACertificateIsForOneNode(t *testing.T) {
	ca := certtest.NewCA(t, "ca")
	for _, allowed := range []string{"{node}.peers.internal", "spiffe://example.org/nodes/{node}"} {
		name := func(node string) string { return strings.Replace(allowed, "{node}", node, 1) }
		sans := tlsconf.SANs{allowed}
		if err := sans.Validate("peer-tls-allowed-san"); err != nil {
			t.Fatal(err)
		}
		mine := load(t, certtest.NewFiles(t, ca.Issue(t, "n1", name("n1")), ca))
		if _, err := mine.Peer("n2", sans); err == nil || !strings.Contains(err.Error(), name("n2")) || !strings.Contains(err.Error(), "--peer-tls-allowed-san") {
			t.Errorf("%s: the certificate of n1 is accepted for n2: %v", allowed, err)
		}
		us, err := mine.Peer("n1", sans)
		if err != nil {
			t.Fatal(err)
		}
		for other, ok := range map[string]bool{name("n2"): true, name("n3"): false, "peers.internal": false, "client.internal": false} {
			leaf := load(t, certtest.NewFiles(t, ca.Issue(t, "other", other), ca))
			if _, err := handshake(t, server(t, leaf), dialing(us, "n2")); (err == nil) != ok {
				t.Errorf("%s: dial %s as n2: %v", allowed, other, err)
			}
			node := other == name("n2") || other == name("n3")
			if _, err := handshake(t, us.Server(), local(leaf.Client(tls.VersionTLS13))); (err == nil) != node {
				t.Errorf("%s: dial by %s: %v", allowed, other, err)
			}
			state, err := handshake(t, server(t, leaf), dialing(us, ""))
			if (err == nil) != node {
				t.Errorf("%s: dial %s as any node: %v", allowed, other, err)
			}
			if err != nil {
				continue
			}
			if err := us.Speaks(&state, "n2"); (err == nil) != ok {
				t.Errorf("%s: %s claims to be n2: %v", allowed, other, err)
			}
		}
	}
	for _, wrong := range []string{"{node}{node}.a", "*.{node}.a.*", "{nod}.a", "spiffe://a/{node}/*/b"} {
		if err := (tlsconf.SANs{wrong}).Validate("peer-tls-allowed-san"); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

func TestProtocols(t *testing.T) {
	ca := certtest.NewCA(t, "ca")
	m := load(t, certtest.NewFiles(t, ca.Issue(t, "server"), ca))
	const (
		small = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
		large = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
	)
	for _, c := range []struct {
		min, max string
		suites   []string
		wrong    string
		speaks   map[uint16]bool // versions of the client that must succeed
	}{
		{speaks: map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true}},
		{min: "TLS1.3", speaks: map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true}},
		{max: "TLS1.2", suites: []string{small}, speaks: map[uint16]bool{tls.VersionTLS12: true, tls.VersionTLS13: true}},
		{min: "TLS1.1", wrong: `--tls-min-version "TLS1.1": use TLS1.2 or TLS1.3`},
		{min: "TLS1.3", max: "TLS1.2", wrong: "--tls-max-version TLS1.2 is below --tls-min-version TLS1.3"},
		{min: "TLS1.3", suites: []string{small}, wrong: "--cipher-suites is for TLS 1.2"},
		{suites: []string{large}, wrong: "HTTP/2 needs"},
		{suites: []string{small, "TLS_RSA_WITH_RC4_128_SHA"}, wrong: "TLS_RSA_WITH_RC4_128_SHA is insecure: use "},
		{suites: []string{small, "TLS_AES_128_GCM_SHA256"}, wrong: "is a TLS 1.3 suite, and those cannot be chosen"},
		{suites: []string{small, "AES"}, wrong: `"AES" is not known: use `},
		{suites: []string{small, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"}},
	} {
		p, err := tlsconf.ParseProtocol(c.min, c.max, c.suites)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil {
			continue
		}
		listener, err := m.Server(p, func() tls.ClientAuthType { return tls.NoClientCert })
		if err != nil {
			t.Fatal(err)
		}
		for version, ok := range c.speaks {
			client := &tls.Config{MinVersion: version, MaxVersion: version, RootCAs: certtest.Pool(ca), ServerName: "localhost"}
			if c.max != "" {
				client.MinVersion = tls.VersionTLS12
			}
			state, err := handshake(t, listener, client)
			if (err == nil) != ok {
				t.Errorf("%+v with a client of %s: %v", c, tls.VersionName(version), err)
			}
			if c.suites != nil && (state.Version != tls.VersionTLS12 || tls.CipherSuiteName(state.CipherSuite) != small) {
				t.Errorf("%+v: %s with %s", c, tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite))
			}
		}
		client := &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, RootCAs: certtest.Pool(ca), ServerName: "localhost"}
		client.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}
		if _, err := handshake(t, listener, client); (err == nil) != (len(c.suites) == 0 && c.min != "TLS1.3") {
			t.Errorf("%+v with a client of %s alone: %v", c, large, err)
		}
	}
}
