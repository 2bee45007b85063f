package policy

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Names are the proven names of a caller, the most specific first: "uri:spiffe://prod/ns/web",
// "dns:web.example.com", "cn:web" of a certificate, "sub:system:serviceaccount:web:default" of a
// token. None: an anonymous caller.
type Names []string

// Anonymous stands for a caller without names, in policies and in logs.
const Anonymous = "anonymous"

// authenticated matches every caller with a name.
const authenticated = "authenticated"

// The kinds of names.
const (
	kindURI     = "uri:"
	kindDNS     = "dns:"
	kindCN      = "cn:"
	kindSubject = "sub:"
)

func kinds() []string { return []string{kindURI, kindDNS, kindCN, kindSubject} }

// maxNames bounds the names taken from one certificate.
const maxNames = 32

// CertificateNames returns the names of a verified certificate: its URI and DNS names, then its common name.
func CertificateNames(c *x509.Certificate) (n Names) {
	for _, u := range c.URIs {
		n = append(n, kindURI+u.String())
	}
	for _, d := range c.DNSNames {
		n = append(n, kindDNS+strings.ToLower(d))
	}
	if cn := c.Subject.CommonName; cn != "" {
		n = append(n, kindCN+cn)
	}
	return n[:min(len(n), maxNames)]
}

// First returns the name for logs and limits.
func (n Names) First() string {
	if len(n) == 0 {
		return Anonymous
	}
	return n[0]
}

// pattern matches names: an exact name; all names with the prefix before a final "*"; one label for the "*" in
// "dns:*."; or the word anonymous or authenticated.
type pattern string

func parsePattern(text string) (pattern, error) {
	if text == Anonymous || text == authenticated {
		return pattern(text), nil
	}
	kind, rest, _ := strings.Cut(text, ":")
	switch {
	case !slices.Contains(kinds(), kind+":"):
		return "", fmt.Errorf("%q: write uri:…, dns:…, cn:…, sub:…, %s or %s", text, authenticated, Anonymous)
	case rest == "":
		return "", fmt.Errorf("%q has no name", text)
	case kind+":" == kindDNS && strings.HasPrefix(rest, "*."):
		rest = rest[1:]
		text = strings.ToLower(text)
	case kind+":" == kindDNS:
		text = strings.ToLower(text)
	default:
		rest = strings.TrimSuffix(rest, "*")
	}
	if strings.Contains(rest, "*") {
		return "", errors.New("a \"*\" is allowed at the end, or as the first label of a dns: name (dns:*.example.com)")
	}
	return pattern(text), nil
}

// kind returns the kind of names that p matches; "": p is a word.
func (p pattern) kind() string {
	kind, _, ok := strings.Cut(string(p), ":")
	if !ok {
		return ""
	}
	return kind + ":"
}

// matches reports whether p matches any of the names.
func (p pattern) matches(n Names) bool {
	switch p {
	case Anonymous:
		return len(n) == 0
	case authenticated:
		return len(n) > 0
	}
	if suffix, ok := strings.CutPrefix(string(p), kindDNS+"*"); ok {
		return slices.ContainsFunc(n, func(name string) bool {
			label, ok := strings.CutSuffix(name, suffix)
			label = strings.TrimPrefix(label, kindDNS)
			return ok && strings.HasPrefix(name, kindDNS) && label != "" && !strings.Contains(label, ".")
		})
	}
	if prefix, ok := strings.CutSuffix(string(p), "*"); ok {
		return slices.ContainsFunc(n, func(name string) bool { return strings.HasPrefix(name, prefix) })
	}
	return slices.Contains(n, string(p))
}
