// Package certtest makes certificates for tests. All of them are good for an
// hour, and for both sides of a connection.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA issues certificates.
type CA struct {
	// PEM is the CA's own certificate.
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a CA.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	ca := &CA{key: newKey(t), cert: &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, ca.cert, ca.cert, &ca.key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	ca.PEM = encode("CERTIFICATE", der)
	return ca
}

// Pool holds the CAs' certificates.
func Pool(cas ...*CA) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, ca := range cas {
		pool.AddCert(ca.cert)
	}
	return pool
}

// Leaf is a certificate with its key.
type Leaf struct {
	Cert, Key []byte // PEM
	Pair      tls.Certificate
}

// Issue makes a certificate for localhost and 127.0.0.1 with further names: DNS
// names, and URIs.
func (ca *CA) Issue(t testing.TB, name string, names ...string) Leaf {
	t.Helper()
	return ca.issue(t, name, time.Time{}, time.Now().Add(time.Hour), names)
}

// IssueFor is Issue for a certificate with a lifetime of its own.
func (ca *CA) IssueFor(t testing.TB, name string, from, to time.Time) Leaf {
	t.Helper()
	return ca.issue(t, name, from, to, nil)
}

func (ca *CA) issue(t testing.TB, name string, from, to time.Time, names []string) Leaf {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if u, err := url.Parse(n); err == nil && u.Scheme != "" {
			template.URIs = append(template.URIs, u)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	l := Leaf{Cert: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", keyDER)}
	if l.Pair, err = tls.X509KeyPair(l.Cert, l.Key); err != nil {
		t.Fatal(err)
	}
	return l
}

// Files are the paths of a certificate, its key, and the CAs to trust.
type Files struct{ Cert, Key, CA string }

// NewFiles writes l and the CAs to a directory of the test's.
func NewFiles(t testing.TB, l Leaf, cas ...*CA) Files {
	t.Helper()
	dir := t.TempDir()
	f := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
	f.Write(t, l)
	f.Trust(t, cas...)
	return f
}

// Write puts l in place of what the files hold.
func (f Files) Write(t testing.TB, l Leaf) {
	t.Helper()
	write(t, f.Cert, l.Cert)
	write(t, f.Key, l.Key)
}

// Trust puts the CAs in place of those that are trusted.
func (f Files) Trust(t testing.TB, cas ...*CA) {
	t.Helper()
	var all []byte
	for _, ca := range cas {
		all = append(all, ca.PEM...)
	}
	write(t, f.CA, all)
}

func write(t testing.TB, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		t.Fatal(err)
	}
	return n.Add(n, big.NewInt(1))
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
