package tlsconf

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// Material is the content of Files.
type Material struct {
	files Files
	names Names
	// accept checks new material before its use; nil: no check. Set by
	// Peer.
	accept func(*contents) error
	now    atomic.Pointer[contents]

	mu   sync.Mutex
	live map[*conn]struct{} // with verified certificates; guarded by mu
}

// contents is the content of the files at one time. It is immutable.
type contents struct {
	cert    *tls.Certificate // nil: none
	ca      *x509.CertPool   // nil: none
	revoked revoked
}

// Load reads files. It fails as Files.Validate does, and when the content of a
// file is invalid.
func Load(files Files, names Names) (*Material, error) {
	if err := files.Validate(names); err != nil {
		return nil, err
	}
	m := &Material{files: files, names: names, live: make(map[*conn]struct{})}
	if err := m.Reload(); err != nil {
		return nil, err
	}
	return m, nil
}

// Reload reads all files again. Later handshakes use the new content, and connections with revoked
// certificates end. If a file is invalid, Reload returns an error and the previous contents stay
// in use.
func (m *Material) Reload() error {
	var (
		next contents
		errs []error
	)
	if m.files.CA != "" {
		pool, cas, err := readPool(m.files.CA)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.names.CA, err))
		}
		next.ca = pool
		if m.files.CRL != "" && err == nil {
			if next.revoked, err = readCRL(m.files.CRL, cas); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", m.names.CRL, err))
			}
		}
	}
	if m.files.Cert != "" {
		cert, err := tls.LoadX509KeyPair(m.files.Cert, m.files.Key)
		if err == nil {
			err = inTime(cert.Leaf, time.Now())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s with %s %s: %w", m.names.Cert, m.files.Cert, m.names.Key, m.files.Key, err))
		}
		next.cert = &cert
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if m.accept != nil {
		if err := m.accept(&next); err != nil {
			return err
		}
	}
	m.use(&next)
	return nil
}

// inTime refuses a certificate that no peer would accept.
func inTime(leaf *x509.Certificate, now time.Time) error {
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate has expired on %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s", leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// Paths returns the paths of all configured files.
func (m *Material) Paths() []string {
	var out []string
	for _, f := range []string{m.files.Cert, m.files.Key, m.files.CA, m.files.CRL} {
		if f != "" {
			out = append(out, f)
		}
	}
	return out
}

// Expires returns the end of our certificate's validity; zero without a certificate.
func (m *Material) Expires() time.Time {
	if c := m.now.Load().cert; c != nil {
		return c.Leaf.NotAfter
	}
	return time.Time{}
}

// Issued returns the start of our certificate's validity; zero without a certificate.
func (m *Material) Issued() time.Time {
	if c := m.now.Load().cert; c != nil {
		return c.Leaf.NotBefore
	}
	return time.Time{}
}

// Server returns the configuration of a listener that speaks p, and one of the protocols (ALPN)
// when there are any. With a CA, auth, called in each handshake, decides whether clients need a
// certificate of that CA; without a CA they need none. It fails without a certificate.
func (m *Material) Server(p Protocol, auth func() tls.ClientAuthType, protocols ...string) (*tls.Config, error) {
	if m.now.Load().cert == nil {
		return nil, fmt.Errorf("a TLS listener needs a certificate: give %s and %s", m.names.Cert, m.names.Key)
	}
	// Each connection keeps the configuration of its handshake. Without a CA all connections
	// share one.
	type common struct {
		of     *contents
		config *tls.Config
	}
	var last atomic.Pointer[common]
	return renewed(func(raw net.Conn) *tls.Config {
		now := m.now.Load()
		if was := last.Load(); was != nil && was.of == now {
			return was.config
		}
		c := &tls.Config{
			MinVersion: max(p.Min, tls.VersionTLS12), MaxVersion: p.Max, CipherSuites: p.CipherSuites,
			Certificates: []tls.Certificate{*now.cert}, NextProtos: protocols,
			// A client cannot use a part of a message. Go would make records of a packet's size at first.
			DynamicRecordSizingDisabled: true,
		}
		if now.ca != nil {
			c.VerifyConnection = func(state tls.ConnectionState) error { return m.verified(raw, &state) }
			c.ClientCAs, c.ClientAuth = now.ca, auth()
			// A ticket would admit, for days, a client that was admitted once.
			c.SessionTicketsDisabled = true
			return c
		}
		last.Store(&common{now, c})
		return c
	}), nil
}

// renewed makes every handshake of a listener fetch the current configuration.
func renewed(now func(raw net.Conn) *tls.Config) *tls.Config {
	c := now(nil).Clone()
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return now(hello.Conn), nil }
	return c
}

// Client returns the configuration of a client that speaks TLS version min or
// newer, from the files as last read: make one for each connection, as
// [Credentials] does. The server's certificate must come from the CA, or,
// without a CA, from one of the system's; it must be valid for the dialled
// name. The client shows its certificate, if any, to servers that ask for one.
func (m *Material) Client(min uint16) *tls.Config {
	now := m.now.Load()
	c := &tls.Config{MinVersion: min, RootCAs: now.ca}
	if now.cert != nil {
		c.Certificates = []tls.Certificate{*now.cert}
	}
	return c
}

// Peer has the configurations of both sides of a connection between nodes: TLS
// 1.3, with certificates of the CA that carry one of the allowed names. The
// dialled address is not compared with the certificate, because nodes may return
// at other addresses. The node's name is, if the allowed names have a place for it.
type Peer struct {
	m       *Material
	allowed SANs
	self    string
}

// Peer returns the configurations of the node self for connections between nodes.
// Without allowed names, the names of our own certificate are allowed. It fails when
// a certificate, a CA or a name is missing; so does Reload from now on. Call it
// before any concurrent call of Reload.
func (m *Material) Peer(self string, allowed SANs) (*Peer, error) {
	now := m.now.Load()
	if now.cert == nil || now.ca == nil {
		return nil, fmt.Errorf("nodes authenticate each other: give %s, %s and %s", m.names.Cert, m.names.Key, m.names.CA)
	}
	p := &Peer{m, allowed, self}
	if err := p.accept(now); err != nil {
		return nil, err
	}
	m.accept = p.accept
	return p, nil
}

// accept refuses an own certificate that other nodes would refuse.
func (p *Peer) accept(now *contents) error {
	names := p.names(now).of(p.self)
	if names.Match(now.cert.Leaf) {
		return nil
	}
	return fmt.Errorf("%s %s would be refused by the other nodes: it carries %s and must carry %s (--peer-tls-allowed-san)",
		p.m.names.Cert, p.m.files.Cert, list(namesOf(now.cert.Leaf)), orAny(names))
}

func orAny(names SANs) string {
	if len(names) == 0 {
		return "a DNS name or URI that all nodes' certificates have in common"
	}
	return list(names)
}

// names are the names that other nodes' certificates must have.
func (p *Peer) names(now *contents) SANs {
	if len(p.allowed) > 0 {
		return p.allowed
	}
	return namesOf(now.cert.Leaf)
}

// verify refuses a certificate without a node's name. A star is a wildcard in a name
// that the operator has given, but not in a name of our own certificate: otherwise every
// holder of a certificate of that domain would be a node. If node is not empty, the
// certificate must have a name of that node.
func (p *Peer) verify(now *contents, state *tls.ConnectionState, node string) error {
	names, like := p.names(now), same
	if len(p.allowed) > 0 {
		like = matches
	}
	if node != "" {
		names = names.of(node)
	}
	return names.verify(state, like)
}

// Speaks fails unless the other side of a connection may speak as the node, by the
// certificate that it has shown.
func (p *Peer) Speaks(state *tls.ConnectionState, node string) error {
	return p.verify(p.m.now.Load(), state, node)
}

// Server returns the configuration of a listener for other nodes.
func (p *Peer) Server() *tls.Config {
	return renewed(func(raw net.Conn) *tls.Config {
		now := p.m.now.Load()
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*now.cert},
			ClientCAs: now.ca, ClientAuth: tls.RequireAndVerifyClientCert,
			VerifyConnection: func(state tls.ConnectionState) error {
				if err := p.verify(now, &state, ""); err != nil {
					return err
				}
				return p.m.verified(raw, &state)
			},
			SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true, // as in Server
		}
	})
}

// Listener is [Material.Listener].
func (p *Peer) Listener(inner net.Listener) net.Listener { return p.m.Listener(inner) }

// Client returns raw, a connection to another node, registered with the material, and the
// configuration of its handshake, from the files as last read. The
// certificate must be for node, if the allowed names have a place for its name; "": any node.
func (p *Peer) Client(raw net.Conn, node string) (net.Conn, *tls.Config) {
	now := p.m.now.Load()
	seen := &conn{Conn: raw, m: p.m}
	return seen, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*now.cert},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, without the address.
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := verifyChain(state, now.ca); err != nil {
				return err
			}
			if err := p.verify(now, &state, node); err != nil {
				return err
			}
			return p.m.verified(seen, &state)
		},
	}
}

// PeerCredentials returns the credentials of a gRPC client of a node; client is
// [Peer.Client].
func PeerCredentials(client func(raw net.Conn, node string) (net.Conn, *tls.Config), node string) credentials.TransportCredentials {
	return &peering{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13}), client, node}
}

type peering struct {
	credentials.TransportCredentials // for all but ClientHandshake
	client                           func(raw net.Conn, node string) (net.Conn, *tls.Config)
	node                             string
}

// ClientHandshake implements credentials.TransportCredentials.
func (p *peering) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	raw, config := p.client(raw, p.node)
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (p *peering) Clone() credentials.TransportCredentials { return PeerCredentials(p.client, p.node) }

// verifyChain refuses a server whose certificate does not come from the CA.
func verifyChain(state tls.ConnectionState, ca *x509.CertPool) error {
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: ca, Intermediates: between})
	return err
}

// Credentials returns the credentials of a gRPC client. Each handshake calls now, so that it uses
// reloaded files.
func Credentials(now func() *tls.Config) credentials.TransportCredentials {
	return &renewing{credentials.NewTLS(now()), now}
}

type renewing struct {
	credentials.TransportCredentials // for all but ClientHandshake
	now                              func() *tls.Config
}

// ClientHandshake implements credentials.TransportCredentials.
func (r *renewing) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.now()).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (r *renewing) Clone() credentials.TransportCredentials { return Credentials(r.now) }

// readPool reads certificates. Any other PEM block is an error, with its line.
func readPool(file string) (pool *x509.CertPool, cas []*x509.Certificate, err error) {
	rest, err := os.ReadFile(file) //nolint:gosec // The operator names the file.
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, cause(err))
	}
	pool = x509.NewCertPool()
	line := 1
	for {
		block, behind := pem.Decode(rest)
		if block == nil {
			break
		}
		begin := bytes.Index(rest, []byte("-----BEGIN"))
		at := line + bytes.Count(rest[:begin], []byte("\n"))
		line += bytes.Count(rest[:len(rest)-len(behind)], []byte("\n"))
		rest = behind
		if block.Type != "CERTIFICATE" {
			return nil, nil, fmt.Errorf("%s:%d: found a %s block instead of a certificate", file, at, strings.ToLower(block.Type))
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", file, at, err)
		}
		pool.AddCert(cert)
		cas = append(cas, cert)
	}
	if len(cas) == 0 {
		return nil, nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return pool, cas, nil
}
