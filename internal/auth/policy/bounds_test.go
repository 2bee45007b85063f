package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
)

// A pattern matches exactly its names, and no similar names.
func TestEdgesOfPatterns(t *testing.T) {
	for pattern, names := range map[string]map[string]bool{
		"dns:*.Example.com":   {"dns:a.example.com": true, "dns:.example.com": false, "dns:a.b.example.com": false, "dns:example.com": false, "cn:a.example.com": false},
		"dns:Web.example.com": {"dns:web.example.com": true, "dns:xweb.example.com": false},
		"cn:ops*":             {"cn:ops": true, "cn:ops-1": true, "cn:op": false, "dns:ops": false},
		"uri:a":               {"uri:a": true, "uri:ab": false},
	} {
		p := parse(t, "roles: {r: [{verbs: [read], all: true}]}\nidentities: [{match: ['"+pattern+"'], roles: [r]}]\n")
		for name, want := range names {
			if got := p.Identity(policy.Names{name}).Known(); got != want {
				t.Errorf("%s matches %s: %v", pattern, name, got)
			}
		}
	}
	for _, pattern := range []string{"cn:*.example.com", "uri:*.example.com", "dns:*web.example.com", "dns:a.*.com", "dns:*.a*"} {
		if _, err := policy.Parse("p", []byte("roles: {r: [{verbs: [read], all: true}]}\nidentities: [{match: ['"+pattern+"'], roles: [r]}]\n")); err == nil || !strings.Contains(err.Error(), `a "*" is allowed at the end`) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// The name for logs and limits is the name that the first entry with a name matches, even after entries with words
// such as authenticated; a role given by two entries counts once.
func TestNameOfAnIdentityInLogsAndLimits(t *testing.T) {
	p := parse(t, `
roles: {r: [{verbs: [read], all: true}]}
identities:
  - {match: [authenticated], roles: [r]}
  - {match: ["dns:b"], roles: [r]}
  - {match: ["uri:a"], roles: [r]}
`)
	for want, names := range map[string]policy.Names{"dns:b": {"uri:a", "dns:b"}, "uri:a": {"uri:a", "cn:c"}, "cn:c": {"cn:c", "cn:d"}} {
		id := p.Identity(names)
		if id.Name != want || !slices.Equal(id.Roles, []string{"r"}) {
			t.Errorf("%v is %s with roles %v, want %s", names, id.Name, id.Roles, want)
		}
	}
	first := parse(t, `
roles: {r: [{verbs: [read], all: true}]}
identities:
  - {match: ["uri:a"], roles: [r]}
  - {match: ["dns:b"], roles: [r]}
`)
	if id := first.Identity(policy.Names{"uri:a", "dns:b"}); id.Name != "uri:a" {
		t.Errorf("the name is %s", id.Name)
	}
}

// Edge cases of valid policies.
func TestEdgesOfAPolicy(t *testing.T) {
	const roles, identities = "roles: {r: [{verbs: [read], all: true}]}\n", "identities: [{match: [anonymous], roles: [r]}]\n"
	if l := parse(t, roles+identities+"limits: {watches: 0}\n").Identity(nil).Limits; l.Watches != 0 {
		t.Errorf("no limit: %d watches", l.Watches)
	}
	for name, c := range map[string]struct{ text, want string }{
		"only roles":        {roles, "roles and identities are required"},
		"only identities":   {identities, "roles and identities are required"},
		"no number":         {roles + identities + "limits: {watches: many}\n", "limits.watches: want a whole number"},
		"a list for one":    {roles + identities + "limits: {watches: [1]}\n", "limits.watches: want a whole number"},
		"no size":           {roles + identities + "limits: {list_bytes: [1]}\n", "limits.list_bytes: want a text that is not empty"},
		"a range of no key": {"roles: {r: [{verbs: [read], ranges: [{from: b, to: b}]}]}\n" + identities, `to ("b") is not after from ("b")`},
	} {
		if _, err := policy.Parse("p", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A token that is too long is not parsed, even if its issuer has signed it; absolute names of key files are
// unchanged.
func TestALongTokenIsNotParsed(t *testing.T) {
	i := newIssuer(t, "https://kubernetes.default.svc.cluster.local", "k")
	p := parse(t, example)
	long := i.sign(func(c *jwt.Claims) { c.ID = strings.Repeat("x", 16<<10) })
	if p.Tokens.Ours(long) {
		t.Error("a token of more than 16 KiB is parsed")
	}
	if _, _, err := p.Tokens.Verify(long, i.keys(), now); err == nil || !strings.Contains(err.Error(), "bytes: at most") {
		t.Errorf("a token of more than 16 KiB: %v", err)
	}
	if _, _, err := p.Tokens.Verify(strings.Repeat("x", 16<<10), i.keys(), now); err == nil || !strings.Contains(err.Error(), "is not a JWT") {
		t.Errorf("16 KiB without dots: %v", err)
	}
	if !p.Tokens.Ours(i.sign(nil)) {
		t.Error("a token of the issuer is not recognized")
	}
	if p := parse(t, strings.Replace(example, "keys: jwks.json", "keys: /etc/jwks.json", 1)); p.Tokens.KeysFile != "/etc/jwks.json" {
		t.Errorf("path of the keys: %s", p.Tokens.KeysFile)
	}
}
