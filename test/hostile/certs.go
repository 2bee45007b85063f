package hostile

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
)

// right is the right of an attacker under a policy: its certificate's common name. Without a policy
// every caller may do everything.
type right string

const (
	stranger right = "stranger" // has no certificate
	nameless right = "nobody"   // has a certificate with a name that the policy lacks
	reader   right = "reader"   // reads and watches
	writer   right = "writer"   // writes /data/
	sibling  right = "sibling"  // has a certificate with a name similar to the nodes'
	operator right = "operator" // may do everything that a policy can permit
	measures right = "crowd"    // is not an attacker
)

// policyText is the policy of a node with TLS: each kind of attacker has one right.
const policyText = `roles:
  reader:
    - verbs: [read, watch]
      prefixes: [/data/, /crowd/]
  writer:
    - verbs: [write]
      prefixes: [/data/]
  operator:
    - verbs: [read, watch, write]
      all: true
    - verbs: [operator:read, operator:write]
  crowd:
    - verbs: [read, watch]
      prefixes: [/crowd/]
identities:
  - match: ["cn:operator"]
    roles: [operator]
  - match: ["cn:reader"]
    roles: [reader]
  - match: ["cn:writer"]
    roles: [writer]
  - match: ["cn:crowd"]
    roles: [crowd]
`

// pki is a directory with the certificates of one node and its clients, the gossip
// key and the policy.
type pki string

// newPKI creates the files in dir. The certificates are valid for an hour.
func newPKI(dir string) (pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	ca, err := certtest.MakeCA("hostile")
	if err != nil {
		return "", err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	p := pki(dir)
	errs := []error{
		p.write("ca.crt", ca.PEM), p.write("policy.yaml", []byte(policyText)),
		p.write("gossip.key", []byte(base64.StdEncoding.EncodeToString(key))),
	}
	for _, name := range []string{"server", string(nameless), string(reader), string(writer), string(operator), string(measures)} {
		leaf, err := ca.Make(name)
		errs = append(errs, err, p.write(name+".crt", leaf.Cert), p.write(name+".key", leaf.Key))
	}
	// Like deploy/k8s/components/tls: one wildcard name for all nodes.
	leaf, err := ca.Make("peer", "*.shardwatch-nodes.shardwatch.svc")
	errs = append(errs, err, p.write("peer.crt", leaf.Cert), p.write("peer.key", leaf.Key))
	leaf, err = ca.Make(string(sibling), "mallory.shardwatch-nodes.shardwatch.svc")
	errs = append(errs, err, p.write("sibling.crt", leaf.Cert), p.write("sibling.key", leaf.Key))
	return p, errors.Join(errs...)
}

func (p pki) write(name string, data []byte) error {
	return os.WriteFile(p.file(name), data, 0o600)
}

func (p pki) file(name string) string { return filepath.Join(string(p), name) }

// flags returns the flags of a node that uses the files.
func (p pki) flags() []string {
	return []string{
		"--tls-cert", p.file("server.crt"), "--tls-key", p.file("server.key"), "--tls-client-ca", p.file("ca.crt"),
		"--http-tls-cert", p.file("server.crt"), "--http-tls-key", p.file("server.key"), "--http-tls-client-ca", p.file("ca.crt"),
		"--peer-tls-cert", p.file("peer.crt"), "--peer-tls-key", p.file("peer.key"), "--peer-tls-ca", p.file("ca.crt"),
		"--gossip-key-file", p.file("gossip.key"), "--policy", p.file("policy.yaml"),
	}
}

// client returns the TLS configuration of a client with a right. A stranger has no certificate.
func (p pki) client(r right) (*tls.Config, error) {
	text, err := os.ReadFile(p.file("ca.crt"))
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{RootCAs: x509Pool(text), MinVersion: tls.VersionTLS12}
	if cfg.RootCAs == nil {
		return nil, fmt.Errorf("%s holds no certificate", p.file("ca.crt"))
	}
	if r == stranger {
		return cfg, nil
	}
	pair, err := tls.LoadX509KeyPair(p.file(string(r)+".crt"), p.file(string(r)+".key"))
	cfg.Certificates = []tls.Certificate{pair}
	return cfg, err
}

// x509Pool returns the certificates of a CA file, or nil if it holds none.
func x509Pool(pem []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil
	}
	return pool
}
