package tlsconf_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/tlsconf"
)

var names = tlsconf.Names{Cert: "tls-cert", Key: "tls-key", CA: "tls-client-ca"}

func TestMutualTLS(t *testing.T) {
	ours, others := newCA(t), newCA(t)
	server := load(t, ours.issue(t, "server"))
	for name, c := range map[string]struct {
		client *tlsconf.Material
		max    uint16
		ok     bool
	}{
		"a certificate of our CA":    {client: load(t, ours.issue(t, "client")), ok: true},
		"a certificate of another":   {client: load(t, withCA(others.issue(t, "client"), ours.file))},
		"no certificate":             {client: load(t, tlsconf.Files{CA: ours.file})},
		"a CA that is not server's":  {client: load(t, withCA(ours.issue(t, "client"), others.file))},
		"a version that is too old":  {client: load(t, ours.issue(t, "client")), max: tls.VersionTLS12},
		"a client without a good CA": {client: load(t, withCA(ours.issue(t, "client"), ""))},
	} {
		t.Run(name, func(t *testing.T) {
			sc, err := server.Server(tls.VersionTLS13)
			if err != nil {
				t.Fatal(err)
			}
			cc := c.client.Client(tls.VersionTLS12)
			cc.ServerName, cc.MaxVersion = "localhost", c.max
			_, err = handshake(t, sc, cc)
			if (err == nil) != c.ok {
				t.Errorf("handshake: %v, want success: %t", err, c.ok)
			}
		})
	}
}

func TestReloadServesTheNewCertificateAndKeepsTheOldWhenItIsBad(t *testing.T) {
	ca := newCA(t)
	files := ca.issue(t, "first")
	files.CA = ""
	m := load(t, files)
	sc, err := m.Server(tls.VersionTLS12)
	if err != nil {
		t.Fatal(err)
	}
	cc := load(t, tlsconf.Files{CA: ca.file}).Client(tls.VersionTLS12)
	cc.ServerName = "localhost"
	shown := func() string {
		t.Helper()
		state, err := handshake(t, sc, cc)
		if err != nil {
			t.Fatal(err)
		}
		return state.PeerCertificates[0].Subject.CommonName
	}
	if got := shown(); got != "first" {
		t.Fatalf("before: %s", got)
	}
	second := ca.issue(t, "second")
	copyFile(t, second.Cert, files.Cert)
	if err := m.Reload(); err == nil {
		t.Error("a certificate that does not match its key was taken")
	} else if !strings.Contains(err.Error(), "--tls-cert "+files.Cert) {
		t.Errorf("the error names neither flag nor file: %v", err)
	}
	if got := shown(); got != "first" {
		t.Errorf("after a bad reload: %s", got)
	}
	copyFile(t, second.Key, files.Key)
	if err := m.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := shown(); got != "second" {
		t.Errorf("after a good reload: %s", got)
	}
}

func TestErrorsNameFlagAndFile(t *testing.T) {
	good := newCA(t).issue(t, "x")
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk.pem")
	write(t, junk, []byte("not PEM"))
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
	_, err := load(t, tlsconf.Files{}).Server(tls.VersionTLS12)
	if err == nil || !strings.Contains(err.Error(), "--tls-cert") {
		t.Errorf("got %v", err)
	}
}

// handshake connects a client to a server, lets one byte pass each way (a
// TLS 1.3 client learns of a refused certificate with its first read only), and
// returns what the client saw.
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

type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newCA(t *testing.T) *ca {
	t.Helper()
	key := newKey(t)
	tmpl := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: t.Name()},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	writePEM(t, file, "CERTIFICATE", der)
	return &ca{cert: cert, key: key, file: file}
}

// issue makes a certificate for localhost, for servers and clients.
func (c *ca) issue(t *testing.T, name string) tlsconf.Files {
	t.Helper()
	key := newKey(t)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{"localhost"},
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.cert, &key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := tlsconf.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: c.file}
	writePEM(t, files.Cert, "CERTIFICATE", der)
	writePEM(t, files.Key, "PRIVATE KEY", keyDER)
	return files
}

func withCA(f tlsconf.Files, ca string) tlsconf.Files {
	f.CA = ca
	return f
}

func load(t *testing.T, f tlsconf.Files) *tlsconf.Material {
	t.Helper()
	m, err := tlsconf.Load(f, names)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	write(t, file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, data)
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
