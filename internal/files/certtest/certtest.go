// Package certtest makes certificates for tests. All of them are valid for an
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
	// PEM is the CA's certificate.
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a CA.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	ca, err := MakeCA(name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// MakeCA is NewCA outside of tests.
func MakeCA(name string) (*CA, error) {
	key, number, err := newKey()
	if err != nil {
		return nil, err
	}
	ca := &CA{key: key, cert: &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, ca.cert, ca.cert, &ca.key.PublicKey, ca.key)
	if err != nil {
		return nil, err
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	ca.PEM = encode("CERTIFICATE", der)
	return ca, nil
}

// Revoke returns a revocation list with the certificates, in PEM.
func (ca *CA) Revoke(t testing.TB, leaves ...Leaf) []byte {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(time.Now().UnixNano()), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
	for _, l := range leaves {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{
			SerialNumber: l.Pair.Leaf.SerialNumber, RevocationTime: time.Now().Add(-time.Minute),
		})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return encode("X509 CRL", der)
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
	return issued(t)(ca.Make(name, names...))
}

// Make is Issue outside of tests.
func (ca *CA) Make(name string, names ...string) (Leaf, error) {
	return ca.issue(pkix.Name{CommonName: name}, time.Time{}, time.Now().Add(time.Hour), names)
}

// IssueFor is Issue with the given lifetime.
func (ca *CA) IssueFor(t testing.TB, name string, from, to time.Time) Leaf {
	t.Helper()
	return issued(t)(ca.issue(pkix.Name{CommonName: name}, from, to, nil))
}

// IssueIn is Issue for a member of groups, in Kubernetes' form.
func (ca *CA) IssueIn(t testing.TB, name string, groups ...string) Leaf {
	t.Helper()
	return issued(t)(ca.issue(pkix.Name{CommonName: name, Organization: groups}, time.Time{}, time.Now().Add(time.Hour), nil))
}

func (ca *CA) issue(subject pkix.Name, from, to time.Time, names []string) (Leaf, error) {
	key, number, err := newKey()
	if err != nil {
		return Leaf{}, err
	}
	template := &x509.Certificate{
		SerialNumber: number, Subject: subject, NotBefore: from, NotAfter: to,
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
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return Leaf{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Leaf{}, err
	}
	l := Leaf{Cert: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", keyDER)}
	l.Pair, err = tls.X509KeyPair(l.Cert, l.Key)
	return l, err
}

// Files are the paths of a certificate, its key, and the CAs to trust.
type Files struct{ Cert, Key, CA string }

// NewFiles writes l and the CAs to a new directory of the test.
func NewFiles(t testing.TB, l Leaf, cas ...*CA) Files {
	t.Helper()
	dir := t.TempDir()
	f := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
	f.Write(t, l)
	f.Trust(t, cas...)
	return f
}

// Write replaces the content of the files with l.
func (f Files) Write(t testing.TB, l Leaf) {
	t.Helper()
	write(t, f.Cert, l.Cert)
	write(t, f.Key, l.Key)
}

// Trust replaces the trusted CAs.
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

// newKey returns a key and a serial number for its certificate.
func newKey() (*ecdsa.PrivateKey, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	return key, n.Add(n, big.NewInt(1)), nil
}

// issued returns a function that fails the test on an error.
func issued(t testing.TB) func(Leaf, error) Leaf {
	return func(l Leaf, err error) Leaf {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
