package main

import (
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
	"github.com/shardwatch/shardwatch/internal/files/reload"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// material is the content of the certificate files, by purpose; nil: no TLS.
type material struct {
	etcd, client, peer, http *tlsconf.Material
	// tokens means that the policy accepts tokens: a client with a token needs no certificate.
	tokens atomic.Bool
}

func loadMaterial(cfg config.Config) (*material, error) {
	var (
		m    material
		errs [4]error
	)
	m.etcd, errs[0] = cfg.EtcdTLS()
	m.client, errs[1] = cfg.ClientMaterial()
	m.peer, errs[2] = cfg.PeerMaterial()
	m.http, errs[3] = cfg.HTTPMaterial()
	return &m, errors.Join(errs[:]...)
}

// clientAuth is the authentication that the client port requires of clients.
func (m *material) clientAuth() tls.ClientAuthType {
	if m.tokens.Load() {
		return tls.VerifyClientCertIfGiven
	}
	return tls.RequireAndVerifyClientCert
}

// secure sets the certificates of the ports.
func (m *material) secure(cfg config.Config, nc *node.Config) (err error) {
	p, err := cfg.Protocol()
	if err != nil {
		return err
	}
	if m.client != nil {
		if cfg.Policy != "" {
			found, err := authz.Check(cfg.Policy)
			if err != nil {
				return err
			}
			m.tokens.Store(found.Tokens != nil)
		}
		if nc.ClientTLS, err = m.client.Server(p, m.clientAuth, "h2", "http/1.1"); err != nil {
			return err
		}
	}
	if m.http != nil {
		// Some paths need no certificate: see telemetry.Serve.
		some := func() tls.ClientAuthType { return tls.VerifyClientCertIfGiven }
		if nc.HTTPTLS, err = m.http.Server(p, some, "h2", "http/1.1"); err != nil {
			return err
		}
	}
	if m.peer == nil {
		return nil
	}
	peer, err := m.peer.Peer(cfg.Name, cfg.PeerSANs)
	if err != nil {
		return err
	}
	nc.PeerServerTLS, nc.PeerClientTLS, nc.PeerSpeaks = peer.Server(), peer.Client, peer.Speaks
	return nil
}

// listeners returns the ports, wrapped to close the connections of revoked certificates.
func (m *material) listeners(l node.Listeners) node.Listeners {
	for _, p := range []struct {
		of *tlsconf.Material
		at []*net.Listener
	}{{m.client, []*net.Listener{&l.Client}}, {m.peer, []*net.Listener{&l.Peer, &l.Raft}}, {m.http, []*net.Listener{&l.HTTP}}} {
		for _, at := range p.at {
			if p.of != nil && *at != nil {
				*at = p.of.Listener(rawconn.Listener(*at)) // innermost: rawconn needs the TCP connection itself
			}
		}
	}
	return l
}

// parts are the files that are reloaded while the node runs.
func (m *material) parts(cfg config.Config, n *node.Node) (parts []reload.Part) {
	for _, p := range []struct {
		what string
		*tlsconf.Material
	}{{"client-tls", m.client}, {"peer-tls", m.peer}, {"http-tls", m.http}, {"etcd-tls", m.etcd}} {
		if p.Material != nil {
			parts = append(parts, reload.Part{What: p.what, Files: p.Paths, Load: p.Reload, Expires: p.Expires, Issued: p.Issued})
		}
	}
	if cfg.Policy != "" {
		parts = append(parts, reload.Part{What: "policy", Files: n.PolicyFiles, Load: func() error {
			if err := n.ReloadPolicy(); err != nil {
				return err
			}
			m.tokens.Store(n.TakesTokens())
			return nil
		}})
	}
	if cfg.GossipKeyFile != "" {
		parts = append(parts, gossipKeys(cfg, n.SetGossipKeys))
	}
	return parts
}

// gossipKeys returns the part that reloads the encryption keys of gossip.
func gossipKeys(cfg config.Config, set func([][]byte) error) reload.Part {
	return reload.Part{What: "gossip-keys", Files: func() []string { return []string{cfg.GossipKeyFile} }, Load: func() error {
		keys, err := cfg.GossipKeys()
		if err != nil {
			return err
		}
		return set(keys)
	}}
}
