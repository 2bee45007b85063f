package mutants

func tlsGroup() Group {
	return Group{Package: "internal/files/tlsconf", Mutants: []Mutant{
		{
			Name: "tls-config-of-old-files", Bug: "has handshakes use files as they were before", File: "material.go",
			Old: "was != nil && was.of == now", New: "was != nil", Tests: "TestConnectionsShareAConfiguration|TestReload",
		},
		{
			Name: "own-wildcard", Bug: "takes a star in its own certificate for a wildcard", File: "material.go",
			Old: `names, like := p.names(now), same`, New: `names, like := p.names(now), matches`, Tests: "TestPeersKnowEachOtherByName",
		},
		{
			Name: "revoked-goes-on", Bug: "connections of a revoked certificate go on", File: "live.go",
			Old: `if next.revoked.check(c.shown) != nil {`, New: `if false {`, Tests: "TestARevokedCertificateEndsItsConnections",
		},
		{
			Name: "revoked-opens", Bug: "a revoked certificate opens connections", File: "live.go",
			Old: `if err := m.now.Load().revoked.check(state.PeerCertificates); err != nil {`, New: `if err := error(nil); err != nil {`, Tests: "TestARevokedCertificateEndsItsConnections",
		},
		{
			Name: "foreign-list", Bug: "takes revocation lists that no CA has signed", File: "crl.go",
			Old: `if err := signedByOne(list, cas); err != nil {`, New: `if err := signedByOne(list, cas); false {`, Tests: "TestARevokedCertificateEndsItsConnections",
		},
		{
			Name: "any-node-will-do", Bug: "takes the certificate of one node for another's", File: "material.go",
			Old: `names = names.of(node)`, New: `_ = node`, Tests: "TestACertificateIsForOneNode",
		},
		{
			Name: "greatest-version", Bug: "speaks TLS 1.3 whatever the greatest version is", File: "material.go",
			Old: `MaxVersion: p.Max, `, New: ``, Tests: "TestProtocols",
		},
		{
			Name: "any-cipher-suite", Bug: "speaks all of Go's cipher suites whatever the flag has", File: "material.go",
			Old: `, CipherSuites: p.CipherSuites,`, New: `,`, Tests: "TestProtocols",
		},
		{
			Name: "least-version", Bug: "speaks TLS 1.2 whatever the least version is", File: "material.go",
			Old: `MinVersion: max(p.Min, tls.VersionTLS12)`, New: `MinVersion: tls.VersionTLS12`, Tests: "TestProtocols",
		},
	}}
}
