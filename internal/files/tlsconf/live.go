package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"net"
)

// A revocation ends established connections. They are found by the certificates that
// they have shown, from their handshake to their end.

// conn is a connection that reports its end to the material.
type conn struct {
	net.Conn
	m      *Material
	shown  []*x509.Certificate // guarded by m.mu; nil: not verified yet
	closed bool                // guarded by m.mu
}

// Listener returns inner such that its connections end when a certificate that they
// have shown is revoked. Connections may be wrapped further, in types that have
// NetConn() net.Conn.
func (m *Material) Listener(inner net.Listener) net.Listener { return &listener{inner, m} }

type listener struct {
	net.Listener
	m *Material
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, m: l.m}, nil
}

// NetConn returns the connection that may end.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn. It may be called again.
func (c *conn) Close() error {
	c.m.mu.Lock()
	c.closed = true
	delete(c.m.live, c)
	c.m.mu.Unlock()
	return c.Conn.Close()
}

// verified refuses revoked certificates, and records the certificates that raw has shown.
// It is for tls.Config.VerifyConnection.
func (m *Material) verified(raw net.Conn, state *tls.ConnectionState) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	// The connection is registered now, so a later revocation ends it.
	if err := m.now.Load().revoked.check(state.PeerCertificates); err != nil {
		return err
	}
	if c := within(raw); c != nil && c.m == m && !c.closed && len(state.PeerCertificates) > 0 {
		c.shown = state.PeerCertificates
		m.live[c] = struct{}{}
	}
	return nil
}

// within returns raw itself or the conn that it wraps; nil: there is none.
func within(raw net.Conn) *conn {
	for raw != nil {
		switch c := raw.(type) {
		case *conn:
			return c
		case interface{ NetConn() net.Conn }:
			raw = c.NetConn()
		default:
			return nil
		}
	}
	return nil
}

// use activates the loaded material, and ends the connections whose certificates it
// revokes.
func (m *Material) use(next *contents) {
	var end []*conn
	m.mu.Lock()
	m.now.Store(next)
	for c := range m.live {
		if next.revoked.check(c.shown) != nil {
			end = append(end, c)
		}
	}
	m.mu.Unlock()
	for _, c := range end {
		_ = c.Close() // it is closed even if Close fails
	}
}
