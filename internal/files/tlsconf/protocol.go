package tlsconf

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
)

// Protocol has the TLS versions and cipher suites of a listener for clients. The zero Protocol is
// TLS 1.2 and newer, with Go's choice of cipher suites.
type Protocol struct {
	// Min and Max are versions, such as tls.VersionTLS12; 0: TLS 1.2, and the newest.
	Min, Max uint16
	// CipherSuites are the suites for TLS 1.2; none: Go's choice. TLS 1.3 has its own.
	CipherSuites []uint16
}

// Versions returns the names of the supported TLS versions, which are etcd's.
func Versions() []string { return []string{"TLS1.2", "TLS1.3"} }

// http2Suites returns the suites of which HTTP/2 needs one with TLS 1.2 (RFC 9113, 9.2.2).
func http2Suites() []uint16 {
	return []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}
}

// ParseProtocol reads versions and cipher suites by their names, which are etcd's; ""
// and none select the defaults of the zero Protocol. The error names the flags.
func ParseProtocol(min, max string, suites []string) (p Protocol, err error) {
	for _, v := range []struct {
		flag, name string
		to         *uint16
	}{{"--tls-min-version", min, &p.Min}, {"--tls-max-version", max, &p.Max}} {
		switch v.name {
		case "":
		case Versions()[0]:
			*v.to = tls.VersionTLS12
		case Versions()[1]:
			*v.to = tls.VersionTLS13
		default:
			return Protocol{}, fmt.Errorf("%s %q: use %s", v.flag, v.name, strings.Join(Versions(), " or "))
		}
	}
	if p.Max != 0 && p.Max < p.Min {
		return Protocol{}, fmt.Errorf("--tls-max-version %s is below --tls-min-version %s", max, min)
	}
	if len(suites) == 0 {
		return p, nil
	}
	if p.Min == tls.VersionTLS13 {
		return Protocol{}, fmt.Errorf("--cipher-suites is for TLS 1.2, and --tls-min-version %s leaves that out: give one of the two", min)
	}
	for _, name := range suites {
		id, err := suiteOf(name)
		if err != nil {
			return Protocol{}, err
		}
		p.CipherSuites = append(p.CipherSuites, id)
	}
	if !slices.ContainsFunc(p.CipherSuites, func(id uint16) bool { return slices.Contains(http2Suites(), id) }) {
		return Protocol{}, fmt.Errorf("--cipher-suites: HTTP/2 needs %s or %s among them", tls.CipherSuiteName(http2Suites()[0]), tls.CipherSuiteName(http2Suites()[1]))
	}
	return p, nil
}

// suiteOf returns a suite of TLS 1.2.
func suiteOf(name string) (uint16, error) {
	// Older names, which etcd accepts (client/pkg/tlsutil).
	old := map[string]uint16{
		"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	}
	if id, ok := old[name]; ok {
		return id, nil
	}
	var known []string
	for _, s := range tls.CipherSuites() {
		switch old := slices.Contains(s.SupportedVersions, tls.VersionTLS12); {
		case s.Name == name && old:
			return s.ID, nil
		case s.Name == name:
			return 0, fmt.Errorf("--cipher-suites: %s is a TLS 1.3 suite, and those cannot be chosen: leave it out", name)
		case old:
			known = append(known, s.Name)
		}
	}
	for _, s := range tls.InsecureCipherSuites() {
		if s.Name == name {
			return 0, fmt.Errorf("--cipher-suites: %s is insecure: use %s", name, strings.Join(known, ", "))
		}
	}
	return 0, fmt.Errorf("--cipher-suites: %q is not known: use %s", name, strings.Join(known, ", "))
}
