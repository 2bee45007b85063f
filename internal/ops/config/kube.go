package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
)

// given is a setting that is not at its default.
type given struct {
	flag string
	is   bool
}

// ofEtcd are settings that apply only to a node that serves etcd.
func (c Config) ofEtcd() []given {
	return []given{
		{"etcd", !slices.Equal(c.Etcd.Endpoints, Defaults().Etcd.Endpoints)},
		{"bootstrap-expect", c.BootstrapExpect != 0},
		{"prefix", len(c.Prefixes) > 0},
		{"policy", c.Policy != ""},
		{"audit-log", c.AuditLog != ""},
		{"tls-cert", !c.ClientTLS.IsZero()},
		{"max-connection-age", c.Limits.ConnectionAge != 0},
		// Excess connections are closed, which makes their informers list again.
		{"address-handshakes", c.Limits.AddressHandshakes != Defaults().Limits.AddressHandshakes},
	}
}

// validateNoKube reports settings that have no effect on a node that serves etcd.
func (c Config) validateNoKube(m *mistakes) {
	k := c.Kube
	for _, g := range []given{
		{"kube-server", len(k.Servers) > 0},
		{"kubeconfig", k.Kubeconfig != ""},
		{"kube-tls-cert", !k.TLS.IsZero()},
		{"kube-proxy-cert", !k.Proxy.IsZero()},
		{"kube-preload", len(k.Preload) > 0},
		{"kube-serve-secrets", k.Secrets},
		{"kube-allow-stale", k.AllowStale != Defaults().Kube.AllowStale},
		{"kube-delta", k.Delta != Defaults().Kube.Delta},
	} {
		if g.is {
			m.addf("--%s is given without --kube-listen, which has the node serve Kubernetes' API", g.flag)
		}
	}
}

// maxAllowStale bounds how long a revoked right counts.
const maxAllowStale = 5 * time.Minute

func (c Config) validateKube(m *mistakes) {
	for _, g := range c.ofEtcd() {
		if g.is {
			m.addf("--%s has no effect with --kube-listen: such a node serves Kubernetes' API alone", g.flag)
		}
	}
	c.validateShared(m)
	c.validateTier(m)
	k := c.Kube
	for _, server := range k.Servers {
		if u, err := url.Parse(server); err != nil || u.Host == "" || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			m.addf("--kube-server %q: want a URL such as https://10.0.0.1:6443", server)
		}
	}
	if k.Kubeconfig != "" {
		m.add(tlsconf.Readable("--kubeconfig", k.Kubeconfig))
	}
	if k.TLS.Cert == "" && k.TLS.Key == "" {
		m.addf("--kube-listen needs --kube-tls-cert and --kube-tls-key: clients send tokens")
	}
	m.add(k.TLS.Validate(kubeTLSNames))
	m.add(k.Proxy.Validate(kubeProxyNames))
	if _, err := c.KubePreload(); err != nil {
		m.add(err)
	}
	if k.AllowStale < 0 || k.AllowStale > maxAllowStale {
		m.addf("--kube-allow-stale %s: use 0s to %s", k.AllowStale, maxAllowStale)
	}
	if !slices.Contains(KubeDeltas(), k.Delta) {
		m.addf("--kube-delta %q: use %s", k.Delta, strings.Join(KubeDeltas(), " or "))
	}
	c.validateExposures(m)
}

// validateTier reports mistakes in the ports and the peer settings.
func (c Config) validateTier(m *mistakes) {
	listeners := []listener{{"kube-listen", c.Kube.Listen}, {"http-listen", c.Listen.HTTP}}
	if len(c.Join) > 0 {
		validateListeners(m, append(listeners, listener{"peer-listen", c.Listen.Peer}, listener{"gossip-listen", c.Listen.Gossip}))
		c.validateHosts(m)
		c.validatePeers(m)
		return
	}
	validateListeners(m, listeners)
	for _, g := range []given{
		{"peer-tls-cert", !c.PeerTLS.IsZero()},
		{"gossip-key-file", c.GossipKeyFile != ""},
	} {
		if g.is {
			m.addf("--%s is given without --join: the node follows resources by itself", g.flag)
		}
	}
}

func (c Config) kubeWarnings() (w []string) {
	for _, e := range c.exposures() {
		w = append(w, fmt.Sprintf("%s is open (--insecure): any client that can reach it %s", e.listener, e.risk))
	}
	if c.Kube.TLS.CA == "" {
		w = append(w, "--kube-client-ca is not given: clients are identified by tokens alone")
	}
	return w
}

// Preload is a resource to follow from the start.
type Preload struct {
	Group, Version, Name string
	JSON                 bool // instead of protobuf
}

// KubePreload reads Kube.Preload: name.version, or name.version.group, with /json.
func (c Config) KubePreload() (out []Preload, err error) {
	for _, text := range c.Kube.Preload {
		resource, encoding, encoded := strings.Cut(text, "/")
		name, rest, found := strings.Cut(resource, ".")
		version, group, grouped := strings.Cut(rest, ".")
		if !found || name == "" || version == "" || version[0] != 'v' || grouped && group == "" || encoded && encoding != "json" && encoding != "protobuf" {
			return nil, fmt.Errorf("--kube-preload %q: want name.version or name.version.group, such as pods.v1 or deployments.v1.apps; append /json to follow it in JSON", text)
		}
		out = append(out, Preload{Group: group, Version: version, Name: name, JSON: encoding == "json"})
	}
	return out, nil
}
