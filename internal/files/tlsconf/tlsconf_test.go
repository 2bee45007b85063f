package tlsconf_test

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
)

var names = tlsconf.Names{Cert: "--tls-cert", Key: "--tls-key", CA: "--tls-client-ca"}

func load(t *testing.T, f certtest.Files) *tlsconf.Material {
	t.Helper()
	m, err := tlsconf.Load(tlsconf.Files{Cert: f.Cert, Key: f.Key, CA: f.CA}, names)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func noCA(f certtest.Files) certtest.Files {
	f.CA = ""
	return f
}

func server(t *testing.T, m *tlsconf.Material) *tls.Config {
	t.Helper()
	c, err := m.Server(tlsconf.Protocol{}, func() tls.ClientAuthType { return tls.RequireAndVerifyClientCert })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Connections of clients without certificates share a configuration until the files are reloaded.
// With client certificates, each connection has its own.
func TestConnectionsShareAConfiguration(t *testing.T) {
	ca := certtest.NewCA(t, "ours")
	files := certtest.NewFiles(t, ca.Issue(t, "server"), ca)
	of := func(c *tls.Config) *tls.Config {
		t.Helper()
		got, err := c.GetConfigForClient(new(tls.ClientHelloInfo))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	open := load(t, noCA(files))
	c := server(t, open)
	before := of(c)
	if of(c) != before {
		t.Error("the connections do not share a configuration")
	}
	if err := open.Reload(); err != nil {
		t.Fatal(err)
	}
	if of(c) == before {
		t.Error("the configuration is the one before the reload")
	}
	verified := server(t, load(t, files))
	if one, other := of(verified), of(verified); one == other {
		t.Error("connections with certificates share a configuration")
	}
}

// A message is sent in one record, from the first one of the connection on.
func TestAMessageIsOneRecord(t *testing.T) {
	ca := certtest.NewCA(t, "ours")
	config := server(t, load(t, noCA(certtest.NewFiles(t, ca.Issue(t, "server"), ca))))
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		conn := tls.Server(there, config)
		_, _ = conn.Write(make([]byte, 10_000)) // the client sees if it fails
		_ = conn.Close()
	}()
	conn := tls.Client(here, &tls.Config{ServerName: "localhost", RootCAs: certtest.Pool(ca), MinVersion: tls.VersionTLS13})
	if n, err := conn.Read(make([]byte, 20_000)); n != 10_000 || err != nil { // at most the content of one record
		t.Errorf("%d bytes, %v", n, err)
	}
}

// dialing returns the configuration of a connection to a node.
func dialing(p *tlsconf.Peer, node string) *tls.Config {
	_, c := p.Client(nil, node)
	return c
}

// local returns a client's configuration for localhost.
func local(c *tls.Config) *tls.Config {
	c.ServerName = "localhost"
	return c
}

func TestMutualTLS(t *testing.T) {
	ours, others := certtest.NewCA(t, "ours"), certtest.NewCA(t, "others")
	listener := load(t, certtest.NewFiles(t, ours.Issue(t, "server"), ours))
	client := ours.Issue(t, "client")
	files := func(l certtest.Leaf, ca *certtest.CA) certtest.Files { return certtest.NewFiles(t, l, ca) }
	for name, c := range map[string]struct {
		client certtest.Files
		max    uint16
		ok     bool
	}{
		"a certificate of our CA":   {client: files(client, ours), ok: true},
		"a certificate of another":  {client: files(others.Issue(t, "client"), ours)},
		"no certificate":            {client: certtest.Files{CA: files(client, ours).CA}},
		"a CA that is not server's": {client: files(client, others)},
		"a version that is too old": {client: files(client, ours), max: tls.VersionTLS11},
		"the system's CAs":          {client: noCA(files(client, ours))},
	} {
		t.Run(name, func(t *testing.T) {
			cc := local(load(t, c.client).Client(tls.VersionTLS10))
			cc.MaxVersion = c.max
			if _, err := handshake(t, server(t, listener), cc); (err == nil) != c.ok {
				t.Errorf("handshake: %v, want success: %t", err, c.ok)
			}
		})
	}
}

// With a certificate of the same CA, a client cannot connect to the port between nodes, and
// a listener with such a certificate does not pass for a node.
func TestPeersKnowEachOtherByName(t *testing.T) {
	ca := certtest.NewCA(t, "one for all")
	const spiffe = "spiffe://example.org/ns/shardwatch/sa/node"
	node := ca.Issue(t, "node", "n1.peers.internal", spiffe)
	for name, c := range map[string]struct {
		allowed tlsconf.SANs
		other   []string
		ok      bool
	}{
		"a name in common":               {other: []string{spiffe}, ok: true},
		"another of them in common":      {other: []string{"x", "n1.peers.internal"}, ok: true},
		"nothing in common but the host": {other: []string{"client.internal", "spiffe://example.org/ns/shop/sa/client"}},
		"no name":                        {},
		"an allowed DNS name":            {allowed: tlsconf.SANs{"*.PEERS.internal"}, other: []string{"n2.peers.internal"}, ok: true},
		"one label, not two":             {allowed: tlsconf.SANs{"*.peers.internal"}, other: []string{"x.n2.peers.internal"}},
		"an allowed URI":                 {allowed: tlsconf.SANs{"x.internal", spiffe}, other: []string{spiffe}, ok: true},
		"an allowed tree of URIs":        {allowed: tlsconf.SANs{"spiffe://example.org/ns/shardwatch/*"}, other: []string{"spiffe://example.org/ns/shardwatch/sa/other"}, ok: true},
		"another tree":                   {allowed: tlsconf.SANs{"spiffe://example.org/ns/shardwatch/*"}, other: []string{"spiffe://example.org/ns/shardwatch-dev/sa/x"}},
		"a name that looks like a URI's": {allowed: tlsconf.SANs{spiffe}, other: []string{"example.org"}},
	} {
		t.Run(name, func(t *testing.T) {
			peer, err := load(t, certtest.NewFiles(t, node, ca)).Peer("n1", c.allowed)
			if err != nil {
				t.Fatal(err)
			}
			other := load(t, certtest.NewFiles(t, ca.Issue(t, "other", c.other...), ca))
			if _, err := handshake(t, peer.Server(), local(other.Client(tls.VersionTLS13))); (err == nil) != c.ok {
				t.Errorf("as a client: %v, want success: %t", err, c.ok)
			}
			if _, err := handshake(t, server(t, other), dialing(peer, "")); (err == nil) != c.ok {
				t.Errorf("as a server: %v, want success: %t", err, c.ok)
			} else if err != nil && !strings.Contains(err.Error(), "--peer-tls-allowed-san") {
				t.Errorf("the error does not name the remedy: %v", err)
			}
		})
	}
	for name, ok := range map[string]bool{
		"web-1.example.org": false, "*.EXAMPLE.org": true,
		"spiffe://example.org/peers/web": false, "spiffe://example.org/peers/*": true,
	} {
		t.Run("our wildcard and "+name, func(t *testing.T) {
			wild := ca.Issue(t, "node", "*.example.org", "spiffe://example.org/peers/*")
			peer, err := load(t, certtest.NewFiles(t, wild, ca)).Peer("n1", nil)
			if err != nil {
				t.Fatal(err)
			}
			other := load(t, certtest.NewFiles(t, ca.Issue(t, "other", name), ca))
			if _, err := handshake(t, peer.Server(), local(other.Client(tls.VersionTLS13))); (err == nil) != ok {
				t.Errorf("as a client: %v, want success: %t", err, ok)
			}
			if _, err := handshake(t, server(t, other), dialing(peer, "")); (err == nil) != ok {
				t.Errorf("as a server: %v, want success: %t", err, ok)
			}
		})
	}
	others := certtest.NewCA(t, "another")
	peer, err := load(t, certtest.NewFiles(t, node, ca)).Peer("n1", nil)
	if err != nil {
		t.Fatal(err)
	}
	stranger := load(t, certtest.NewFiles(t, others.Issue(t, "node", spiffe), ca))
	if _, err := handshake(t, peer.Server(), local(stranger.Client(tls.VersionTLS13))); err == nil {
		t.Error("a client with the right name of a wrong CA was accepted")
	}
	if _, err := handshake(t, server(t, stranger), dialing(peer, "")); err == nil {
		t.Error("a server with the right name of a wrong CA was accepted as a node")
	}
}

// A cluster changes from a shared certificate to one for each node in steps, without an interruption:
// nodes of a step accept those of the step before and after it. The shared certificate has a wildcard,
// as in deploy/k8s/components/tls.
func TestNodesAcceptEachOtherBetweenTheStepsToSeparateCertificates(t *testing.T) {
	ca := certtest.NewCA(t, "peers")
	const shared, own = "*.peers.internal", "{node}.peers.internal"
	steps := []struct {
		allowed  tlsconf.SANs
		separate bool
	}{
		{},
		{allowed: tlsconf.SANs{shared}},
		{allowed: tlsconf.SANs{shared}, separate: true},
		{allowed: tlsconf.SANs{own}, separate: true},
	}
	peer := func(step int, node string) *tlsconf.Peer {
		name := shared
		if steps[step].separate {
			name = node + ".peers.internal"
		}
		p, err := load(t, certtest.NewFiles(t, ca.Issue(t, "node", name), ca)).Peer(node, steps[step].allowed)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for i := range steps {
		for j := range steps {
			a, b := peer(i, "n1"), peer(j, "n2")
			state, err := handshake(t, b.Server(), dialing(a, "n2"))
			if err == nil {
				err = a.Speaks(&state, "n2")
			}
			if apart := max(i-j, j-i); apart <= 1 && err != nil {
				t.Errorf("step %d refuses step %d: %v", i, j, err)
			} else if apart == 3 && err == nil {
				t.Errorf("step %d accepts step %d: the steps between are not needed", i, j)
			}
		}
	}
}

func TestPeerWithoutAName(t *testing.T) {
	ca := certtest.NewCA(t, "ca")
	m := load(t, certtest.NewFiles(t, ca.Issue(t, "node"), ca))
	for _, allowed := range []tlsconf.SANs{nil, {"peers.internal"}} {
		if _, err := m.Peer("n1", allowed); err == nil || !strings.Contains(err.Error(), "--peer-tls-allowed-san") {
			t.Errorf("%v: %v", allowed, err)
		}
	}
}

// A handshake with an existing configuration uses the reloaded files: certificates, and CAs
// in the two steps of a rotation.
func TestReload(t *testing.T) {
	before, after := certtest.NewCA(t, "before"), certtest.NewCA(t, "after")
	files := certtest.NewFiles(t, before.Issue(t, "first"), before)
	m := load(t, files)
	sc := server(t, m)
	sessions := tls.NewLRUClientSessionCache(9) // a ticket must not outlive the CA
	dial := func(l certtest.Leaf, trust *certtest.CA) (string, error) {
		state, err := handshake(t, sc, &tls.Config{
			RootCAs: certtest.Pool(trust), Certificates: []tls.Certificate{l.Pair}, ServerName: "localhost", ClientSessionCache: sessions,
		})
		if err != nil {
			return "", err
		}
		return state.PeerCertificates[0].Subject.CommonName, nil
	}
	old, young := before.Issue(t, "old client"), after.Issue(t, "young client")
	expect := func(step string, l certtest.Leaf, trust *certtest.CA, want string) {
		t.Helper()
		if got, err := dial(l, trust); got != want {
			t.Errorf("%s: saw %q, want %q: %v", step, got, want, err)
		}
	}
	reload := func() {
		t.Helper()
		if err := m.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	expect("at first", old, before, "first")
	expect("at first", young, before, "")
	files.Trust(t, before, after)
	reload()
	expect("both trusted", old, before, "first")
	expect("both trusted", young, before, "first")
	files.Write(t, after.Issue(t, "second"))
	reload()
	expect("the new certificate", old, after, "second")
	files.Trust(t, after)
	reload()
	expect("the old CA gone", young, after, "second")
	expect("the old CA gone", old, after, "")
}

func TestInvalidCertificatesAreRejected(t *testing.T) {
	ca := certtest.NewCA(t, "ca")
	now := time.Now()
	for name, c := range map[string]struct {
		spoil func(f certtest.Files)
		want  string
	}{
		"a key of another certificate": {func(f certtest.Files) { writeTo(t, f.Key, ca.Issue(t, "x").Key) }, "private key does not match"},
		"no PEM":                       {func(f certtest.Files) { writeTo(t, f.Cert, []byte("x")) }, "--tls-cert"},
		"expired": {func(f certtest.Files) {
			f.Write(t, ca.IssueFor(t, "x", now.Add(-2*time.Hour), now.Add(-time.Hour)))
		}, "has expired on "},
		"not yet": {func(f certtest.Files) {
			f.Write(t, ca.IssueFor(t, "x", now.Add(time.Hour), now.Add(2*time.Hour)))
		}, "is not valid before "},
		"no name of a node": {func(f certtest.Files) { f.Write(t, ca.Issue(t, "x", "client.internal")) }, "would be refused by the other nodes"},
		"an empty CA":       {func(f certtest.Files) { writeTo(t, f.CA, nil) }, "holds no PEM certificate"},
		"a CA that is no CA": {func(f certtest.Files) {
			writeTo(t, f.CA, append(ca.PEM, ca.Issue(t, "x").Key...))
		}, "found a private key block instead of a certificate"},
		"a broken CA": {func(f certtest.Files) {
			writeTo(t, f.CA, append([]byte("# ours\n\n"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...))
		}, "ca.crt:3: "},
		"no file": {func(f certtest.Files) { _ = os.Remove(f.CA) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			files := certtest.NewFiles(t, ca.Issue(t, "good", "peer.internal"), ca)
			m := load(t, files)
			if _, err := m.Peer("n1", tlsconf.SANs{"peer.internal"}); err != nil {
				t.Fatal(err)
			}
			c.spoil(files)
			err := m.Reload()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), filepath.Dir(files.Cert)) {
				t.Errorf("got %v, want %q and the file", err, c.want)
			}
			client := ca.Issue(t, "client")
			state, err := handshake(t, server(t, m), &tls.Config{RootCAs: certtest.Pool(ca), Certificates: []tls.Certificate{client.Pair}, ServerName: "localhost"})
			if err != nil || state.PeerCertificates[0].Subject.CommonName != "good" {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func TestErrorsNameFlagAndFile(t *testing.T) {
	ca := certtest.NewCA(t, "ca")
	good := certtest.NewFiles(t, ca.Issue(t, "x"), ca)
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk.pem")
	writeTo(t, junk, []byte("not PEM"))
	for name, c := range map[string]struct {
		files tlsconf.Files
		want  []string
	}{
		"certificate alone": {tlsconf.Files{Cert: good.Cert}, []string{"--tls-cert is given but --tls-key is not"}},
		"key alone":         {tlsconf.Files{Key: good.Key}, []string{"--tls-key is given but --tls-cert is not"}},
		"all missing": {
			tlsconf.Files{Cert: dir + "/a", Key: dir + "/b", CA: dir + "/c"},
			[]string{
				"--tls-cert: " + dir + "/a: no such file or directory",
				"--tls-key: " + dir + "/b: no such file or directory",
				"--tls-client-ca: " + dir + "/c: no such file or directory",
			},
		},
		"a directory": {tlsconf.Files{CA: dir}, []string{"--tls-client-ca: " + dir + " is a directory"}},
		"junk": {
			tlsconf.Files{Cert: junk, Key: good.Key, CA: junk},
			[]string{"--tls-client-ca: " + junk + " holds no PEM certificate", "--tls-cert " + junk},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tlsconf.Load(c.files, names)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("no %q in: %v", w, err)
				}
			}
		})
	}
}

func TestAListenerNeedsACertificate(t *testing.T) {
	m := load(t, certtest.Files{})
	if _, err := m.Server(tlsconf.Protocol{}, nil); err == nil || !strings.Contains(err.Error(), "--tls-cert") {
		t.Errorf("got %v", err)
	}
	if _, err := m.Peer("n1", nil); err == nil || !strings.Contains(err.Error(), "--tls-client-ca") {
		t.Errorf("got %v", err)
	}
}

// handshake connects a client to a server, passes one byte each way (a TLS 1.3 client learns of a
// refused certificate only with its first read), and returns the client's result.
func handshake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := l.Accept()
		if err != nil {
			return
		}
		c := tls.Server(raw, server)
		defer c.Close()
		if _, err := io.CopyN(c, c, 1); err != nil {
			return
		}
	}()
	defer func() { l.Close(); <-done }()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, client)
	defer c.Close()
	if _, err := c.Write([]byte{1}); err != nil {
		return tls.ConnectionState{}, err
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return tls.ConnectionState{}, err
	}
	return c.ConnectionState(), nil
}

func writeTo(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
