package policy_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/kv"
)

const example = `
tokens:
  issuer: https://kubernetes.default.svc.cluster.local
  audience: shardwatch
  keys: jwks.json
limits:
  watches: 10
  list_bytes: 64MiB
roles:
  pods:
    - verbs: [read, watch]
      prefixes: [/pods/]
  config:
    - verbs: [read]
      keys: [/config/a, /config/b]
    - verbs: [write]
      ranges: [{from: /config/a, to: /config/c}, {from: /z}]
  nodes:
    - verbs: [read, watch]
      ranges: [{from: /pods0, to: /q}]
  operator:
    - verbs: [operator:write]
  looker:
    - verbs: [operator:read]
  all:
    - verbs: [read, watch, write]
      all: true
identities:
  - match: ["uri:spiffe://prod/*", "sub:system:serviceaccount:web:default"]
    roles: [pods, config]
    limits: {watches: 5}
  - match: ["uri:spiffe://prod/web"]
    roles: [nodes]
    limits: {watches: 7, streams: 3}
  - match: ["dns:*.example.com"]
    roles: [all]
  - match: ["cn:ops"]
    roles: [operator]
  - match: ["cn:prometheus"]
    roles: [looker]
  - match: [authenticated]
    roles: [nodes]
`

func parse(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("dir/policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRightsOfIdentities(t *testing.T) {
	p := parse(t, example)
	for _, c := range []struct {
		names string // separated by spaces
		verb  policy.Verb
		r     kv.Range
		want  bool
	}{
		{"uri:spiffe://prod/api", policy.Read, kv.Prefix("/pods/"), true},
		{"uri:spiffe://prod/api", policy.Watch, kv.Single("/pods/a"), true},
		{"uri:spiffe://prod/api", policy.Write, kv.Single("/pods/a"), false},
		{"uri:spiffe://prod/api", policy.Read, kv.Prefix("/"), false},
		{"uri:spiffe://prod/api", policy.Read, kv.Range{}, false},
		{"uri:spiffe://prod/api", policy.Read, kv.Single("/config/a"), true},
		{"uri:spiffe://prod/api", policy.Read, kv.Single("/config/aa"), false},
		{"uri:spiffe://prod/api", policy.Write, kv.Single("/config/aa"), true},
		{"uri:spiffe://prod/api", policy.Write, kv.Single("/config/c"), false},
		{"uri:spiffe://prod/api", policy.Write, kv.Range{Start: "/zz"}, true},
		{"uri:spiffe://prod/api", policy.OperatorWrite, kv.Range{}, false},
		{"uri:spiffe://test/api", policy.Read, kv.Prefix("/pods/"), false},
		// Only both roles together cover the range.
		{"uri:spiffe://prod/web", policy.Watch, kv.Range{Start: "/pods/", End: "/q"}, true},
		{"sub:system:serviceaccount:web:default", policy.Read, kv.Prefix("/pods/"), true},
		{"sub:system:serviceaccount:web:other", policy.Read, kv.Prefix("/pods/"), false},
		{"dns:a.example.com", policy.Write, kv.Range{}, true},
		{"dns:a.b.example.com", policy.Write, kv.Range{}, false},
		{"dns:example.com", policy.Write, kv.Range{}, false},
		{"cn:a.example.com", policy.Write, kv.Range{}, false},
		{"dns:a.example.com", policy.OperatorWrite, kv.Range{}, false},
		{"cn:ops", policy.OperatorWrite, kv.Range{}, true},
		{"cn:opsy", policy.OperatorWrite, kv.Range{}, false},
		{"cn:ops", policy.OperatorRead, kv.Range{}, false},
		{"cn:prometheus", policy.OperatorRead, kv.Range{}, true},
		{"cn:prometheus", policy.OperatorWrite, kv.Range{}, false},
		{"cn:prometheus", policy.Read, kv.Single("/pods/a"), false},
		{"cn:ops", policy.Read, kv.Single("/pods/a"), false},
		{"cn:anybody", policy.Read, kv.Single("/pods0"), true},
		{"", policy.Read, kv.Single("/pods0"), false},
		// One of several names is enough.
		{"cn:x dns:y cn:ops", policy.OperatorWrite, kv.Range{}, true},
	} {
		names := policy.Names(strings.Fields(c.names))
		if got := p.Identity(names).May(c.verb, c.r); got != c.want {
			t.Errorf("%q %v %v: %v", c.names, c.verb, c.r, got)
		}
		got, because := p.Explain(names, c.verb, c.r)
		if got != c.want || len(because) == 0 {
			t.Errorf("explain %q %v %v: %v, %q", c.names, c.verb, c.r, got, because)
		}
	}
	if p.Identity(nil).Known() || !p.Identity(policy.Names{"cn:x"}).Known() {
		t.Error("Known must report exactly the callers with a role")
	}
}

func TestLimits(t *testing.T) {
	p := parse(t, example)
	web := p.Identity(policy.Names{"uri:spiffe://prod/web"})
	want := policy.DefaultLimits()
	want.Watches, want.Streams, want.ListBytes = 5, 3, 64<<20 // the first entry with a limit decides
	if web.Limits != want {
		t.Errorf("got %+v, want %+v", web.Limits, want)
	}
	if got := p.Identity(nil).Limits.Watches; got != 10 {
		t.Errorf("got %d", got)
	}
}

// Certificates that share a name are different identities if the policy matches another name.
func TestAnIdentityHasTheNameThatThePolicyMatches(t *testing.T) {
	p := parse(t, example)
	for names, want := range map[string]string{
		"dns:localhost cn:ops": "cn:ops",
		"dns:localhost cn:x":   "dns:localhost",
		"":                     policy.Anonymous,
	} {
		if got := p.Identity(strings.Fields(names)).Name; got != want {
			t.Errorf("%q: got %s, want %s", names, got, want)
		}
	}
}

func TestCertificateNames(t *testing.T) {
	u, err := url.Parse("spiffe://prod/web")
	if err != nil {
		t.Fatal(err)
	}
	got := policy.CertificateNames(&x509.Certificate{URIs: []*url.URL{u}, DNSNames: []string{"Web.Example.com"}, Subject: pkix.Name{CommonName: "web"}})
	if want := (policy.Names{"uri:spiffe://prod/web", "dns:web.example.com", "cn:web"}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if name := policy.Names(nil).First(); name != policy.Anonymous {
		t.Errorf("got %q", name)
	}
}

func TestJSONIsTaken(t *testing.T) {
	p := parse(t, `{"roles": {"r": [{"verbs": ["read"], "all": true}]}, "identities": [{"match": ["anonymous"], "roles": ["r"]}]}`)
	if !p.Identity(nil).May(policy.Read, kv.Range{}) {
		t.Error("not read")
	}
}

func TestExplain(t *testing.T) {
	p := parse(t, example)
	for _, c := range []struct {
		name string
		verb policy.Verb
		r    kv.Range
		want string
	}{
		{"uri:spiffe://prod/api", policy.Watch, kv.Single("/pods/a"), `line 29: uri:spiffe://prod/api has roles pods, config|line 41: uri:spiffe://prod/api has role nodes|line 11: role pods allows watch of "/pods/a"`},
		{"uri:spiffe://prod/api", policy.Read, kv.Prefix("/"), `line 29: uri:spiffe://prod/api has roles pods, config|line 41: uri:spiffe://prod/api has role nodes|` +
			`line 14: role config allows read of "/config/a"|line 14: role config allows read of "/config/b"|line 19: role nodes allows read of ["/pods0", "/q")|line 11: role pods allows read of ["/pods/", "/pods0")|` +
			`no rule of these roles allows read of ["/", "0")`},
		{"anonymous", policy.OperatorWrite, kv.Range{}, "no entry of identities matches anonymous"},
	} {
		names := policy.Names{c.name}
		if c.name == policy.Anonymous {
			names = nil
		}
		_, because := p.Explain(names, c.verb, c.r)
		if got := strings.Join(because, "|"); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}
