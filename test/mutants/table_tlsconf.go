package mutants

func tlsGroup() Group {
	return Group{Package: "internal/files/tlsconf", Mutants: []Mutant{
		{
			Name: "tls-config-of-old-files", Bug: "handshakes use outdated files", File: "material.go",
			Old: "was != nil && was.of == now", New: "was != nil", Tests: "TestConnectionsShareAConfiguration|TestReload",
		},
		{
			Name: "own-wildcard", Bug: "treats a star in its own certificate as a wildcard", File: "material.go",
			Old: `names, like := p.names(now), same`, New: `names, like := p.names(now), matches`, Tests: "TestPeersKnowEachOtherByName",
		},
		{
			Name: "revoked-goes-on", Bug: "keeps connections of a revoked certificate", File: "live.go",
			Old: `if next.revoked.check(c.shown) != nil {`, New: `if false {`, Tests: "TestARevokedCertificateEndsItsConnections",
		},
		{
			Name: "revoked-opens", Bug: "accepts connections with a revoked certificate", File: "live.go",
			Old: `if err := m.now.Load().revoked.check(state.PeerCertificates); err != nil {`, New: `if err := error(nil); err != nil {`, Tests: "TestARevokedCertificateEndsItsConnections",
		},
		{
			Name: "foreign-list", Bug: "accepts revocation lists that no CA has signed", File: "crl.go",
			Old: `if err := signedByOne(list, cas); err != nil {`, New: `if err := signedByOne(list, cas); false {`, Tests: "TestARevokedCertificateEndsItsConnections",
		},
		{
			Name: "any-node-will-do", Bug: "accepts the certificate of one node for another", File: "material.go",
			Old: `names = names.of(node)`, New: `_ = node`, Tests: "TestACertificateIsForOneNode",
		},
		{
			Name: "greatest-version", Bug: "uses TLS 1.3 regardless of the maximum version", File: "material.go",
			Old: `MaxVersion: p.Max, `, New: ``, Tests: "TestProtocols",
		},
		{
			Name: "any-cipher-suite", Bug: "uses all of Go's cipher suites regardless of the flag", File: "material.go",
			Old: `, CipherSuites: p.CipherSuites,`, New: `,`, Tests: "TestProtocols",
		},
		{
			Name: "least-version", Bug: "uses TLS 1.2 regardless of the minimum version", File: "material.go",
			Old: `MinVersion: max(p.Min, tls.VersionTLS12)`, New: `MinVersion: tls.VersionTLS12`, Tests: "TestProtocols",
		},
	}}
}
