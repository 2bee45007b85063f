package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// SANs are names of which a certificate must carry one, as a DNS or URI subject
// alternative name:
//
//	node.shardwatch.internal          that DNS name
//	*.peers.shardwatch.internal       that, and every name with one label in place of the star
//	spiffe://example.org/shardwatch   that URI
//	spiffe://example.org/peers/*      that, and every URI with this prefix
//	{node}.peers.internal             that, with the node's name in place of {node}
//
// IP addresses do not count, because they can be assigned to other machines.
type SANs []string

// Validate names every entry that is neither a DNS name nor a URI.
func (s SANs) Validate(flag string) error {
	var errs []error
	for _, want := range s {
		if strings.Contains(want, "://") {
			if u, err := url.Parse(strings.Replace(want, place, "node", 1)); err != nil || u.Host == "" || strings.Contains(strings.TrimSuffix(want, "/*"), "*") {
				errs = append(errs, fmt.Errorf("--%s %q: want a URI such as spiffe://example.org/shardwatch or spiffe://example.org/{node}; a star is allowed at its end, after a slash", flag, want))
			}
			continue
		}
		name := strings.TrimPrefix(strings.Replace(want, place, "node", 1), "*.")
		if name == "" || strings.ContainsAny(name, "*/: {}") || strings.HasPrefix(name, ".") {
			errs = append(errs, fmt.Errorf("--%s %q: want a DNS name, such as node.shardwatch.internal, *.peers.internal or {node}.peers.internal, or a URI", flag, want))
		}
	}
	return errors.Join(errs...)
}

// place is the placeholder of a node's name in one of SANs.
const place = "{node}"

// of returns the names with the node's name in place of the placeholder.
func (s SANs) of(node string) SANs {
	out := make(SANs, len(s))
	for i, want := range s {
		out[i] = strings.Replace(want, place, node, 1)
	}
	return out
}

// Match reports whether cert carries one of the names.
func (s SANs) Match(cert *x509.Certificate) bool {
	return s.carriedBy(cert, matches)
}

// carriedBy reports whether cert carries a name that is like one of s.
func (s SANs) carriedBy(cert *x509.Certificate, like func(want, name string) bool) bool {
	return slices.ContainsFunc(namesOf(cert), func(name string) bool {
		return slices.ContainsFunc(s, func(want string) bool { return like(want, name) })
	})
}

// same compares names without wildcards: URIs byte by byte.
func same(want, name string) bool {
	return want == name || !strings.Contains(want, "://") && strings.EqualFold(want, name)
}

// matches compares DNS names as DNS does, and URIs byte by byte.
func matches(want, name string) bool {
	if before, after, ok := strings.Cut(want, place); ok { // any node's
		n := len(before) + len(after)
		return len(name) > n && same(before, name[:len(before)]) && same(after, name[len(name)-len(after):]) &&
			!strings.ContainsAny(name[len(before):len(name)-len(after)], "/*") && strings.Contains(want, "://") == strings.Contains(name, "://")
	}
	if strings.Contains(want, "://") {
		prefix, all := strings.CutSuffix(want, "*")
		return want == name || (all && strings.HasPrefix(name, prefix))
	}
	if strings.EqualFold(want, name) {
		return true
	}
	_, parent, ok := strings.Cut(name, ".")
	return ok && strings.HasPrefix(want, "*.") && strings.EqualFold(want[2:], parent)
}

// namesOf returns the DNS and URI names of a certificate that identify its holder;
// localhost does not, because every machine is localhost.
func namesOf(cert *x509.Certificate) []string {
	var out []string
	for _, name := range cert.DNSNames {
		if !strings.EqualFold(name, "localhost") {
			out = append(out, name)
		}
	}
	for _, u := range cert.URIs {
		out = append(out, u.String())
	}
	return out
}

// verify refuses the other side of a connection whose certificate carries no name
// that is like one of s.
func (s SANs) verify(state *tls.ConnectionState, like func(want, name string) bool) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("no certificate was shown")
	}
	if cert := state.PeerCertificates[0]; !s.carriedBy(cert, like) {
		return fmt.Errorf("the certificate of %s is not a node's: it has %s and must have %s (--peer-tls-allowed-san)",
			cert.Subject, list(namesOf(cert)), list(s))
	}
	return nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "no name"
	}
	return strings.Join(names, ", ")
}
