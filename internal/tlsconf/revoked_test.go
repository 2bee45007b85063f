package tlsconf_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/certtest"
	"github.com/shardwatch/shardwatch/internal/tlsconf"
)

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
		speaks   map[uint16]bool // versions that a client may have
	}{
		{speaks: map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true}},
		{min: "TLS1.3", speaks: map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true}},
		{max: "TLS1.2", suites: []string{small}, speaks: map[uint16]bool{tls.VersionTLS12: true, tls.VersionTLS13: true}},
		{min: "TLS1.1", wrong: `--tls-min-version "TLS1.1": use TLS1.2 or TLS1.3`},
		{min: "TLS1.3", max: "TLS1.2", wrong: "--tls-max-version TLS1.2 is below --tls-min-version TLS1.3"},
		{min: "TLS1.3", suites: []string{small}, wrong: "--cipher-suites is for TLS 1.2"},
		{suites: []string{large}, wrong: "HTTP/2 needs"},
		{suites: []string{small, "TLS_RSA_WITH_RC4_128_SHA"}, wrong: "TLS_RSA_WITH_RC4_128_SHA is insecure: use "},
		{suites: []string{small, "TLS_AES_128_GCM_SHA256"}, wrong: "is of TLS 1.3, whose suites cannot be chosen"},
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
