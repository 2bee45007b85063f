package policy_test

import (
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// All mistakes are reported, with file, line and field.
func TestMistakesAreNamed(t *testing.T) {
	const (
		roles      = "roles: {r: [{verbs: [read], all: true}]}\n"
		identities = "identities: [{match: [anonymous], roles: [r]}]\n"
	)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"empty":         {"", []string{"p.yaml: is empty"}},
		"comments":      {"# nothing\n", []string{"p.yaml: is empty"}},
		"null":          {"null\n", []string{"p.yaml: is empty"}},
		"no YAML":       {"roles: [\n", []string{"p.yaml: line 1: did not find expected node content"}},
		"two documents": {roles + identities + "---\nx: 1\n", []string{"p.yaml: more than one YAML document"}},
		"a list":        {"- a\n", []string{`p.yaml:1: want lines of the form "name: value" with tokens, limits, roles, identities`}},
		"nothing given": {"limits: {watches: 1}\n", []string{"p.yaml:1: roles and identities are required"}},
		"unknown field": {roles + identities + "role: 1\n", []string{`p.yaml:3: unknown field "role": use tokens, limits, roles, identities`}},
		"set twice":     {roles + roles + identities, []string{"p.yaml:2: roles is set again; it was set in line 1"}},
		"a role without rules": {"roles:\n  r: []\n" + identities, []string{
			"p.yaml:2: roles.r: want a list with at least one item",
		}},
		"an unknown verb": {"roles: {r: [{verbs: [reed], all: true}]}\n" + identities, []string{
			`p.yaml:1: roles.r[0].verbs[0]: "reed" is not a verb: use read, watch, write, operator:read, operator:write`,
		}},
		"no verbs": {"roles: {r: [{all: true}]}\n" + identities, []string{"p.yaml:1: roles.r[0]: verbs is needed, or deny"}},
		"no keys":  {"roles: {r: [{verbs: [read]}]}\n" + identities, []string{"p.yaml:1: roles.r[0]: keys are needed"}},
		"deny beside verbs": {"roles: {r: [{verbs: [read], deny: [write], all: true}]}\n" + identities, []string{
			"p.yaml:1: roles.r[0]: a rule allows verbs or denies them: give deny a rule of its own",
		}},
		"deny without keys": {"roles: {r: [{deny: [read]}]}\n" + identities, []string{"p.yaml:1: roles.r[0]: keys are needed"}},
		"deny of an unknown verb": {"roles: {r: [{deny: [reed], all: true}]}\n" + identities, []string{
			`p.yaml:1: roles.r[0].deny[0]: "reed" is not a verb`,
		}},
		"all is false": {"roles: {r: [{verbs: [read], all: false}]}\n" + identities, []string{
			"p.yaml:1: roles.r[0].all: want true, or leave it out",
		}},
		"an empty prefix": {"roles: {r: [{verbs: [read], prefixes: [\"\"]}]}\n" + identities, []string{
			"p.yaml:1: roles.r[0].prefixes[0]: want a text that is not empty",
		}},
		"a range backwards": {"roles:\n  r:\n    - verbs: [read]\n      ranges: [{from: b, to: a}, {to: c}]\n" + identities, []string{
			`p.yaml:4: roles.r[0].ranges[0]: to ("a") is not after from ("b")`, "p.yaml:4: roles.r[0].ranges[1]: from is needed",
		}},
		"an operator's verb with keys": {"roles: {r: [{verbs: [operator:read], keys: [a]}]}\n" + identities, []string{
			"p.yaml:1: roles.r[0]: operator:read and operator:write are not about keys: leave roles.r[0].keys out",
		}},
		"an operator's verb among others": {"roles: {r: [{verbs: [operator:write, read], keys: [a]}]}\n" + identities, []string{
			"p.yaml:1: roles.r[0]: operator:read and operator:write are not about keys: give them a rule of their own",
		}},
		"an unknown role": {roles + "identities:\n  - match: [anonymous]\n    roles: [q]\n", []string{
			`p.yaml:4: identities[0].roles[0]: unknown role "q": use r`,
		}},
		"no match": {roles + "identities:\n  - roles: [r]\n", []string{"p.yaml:3: identities[0]: match is needed"}},
		"a bad name": {roles + "identities:\n  - match: [bob, 'cn:', 'cn:a*b', 'dns:a.*']\n    roles: [r]\n", []string{
			`p.yaml:3: identities[0].match[0]: "bob": write uri:…, dns:…, cn:…, sub:…`, `match[1]: "cn:" has no name`,
			`match[2]: a "*" is allowed at the end`, `match[3]: a "*" is allowed at the end`,
		}},
		"a token's name without tokens": {roles + "identities:\n  - match: ['sub:a']\n    roles: [r]\n", []string{
			"p.yaml:3: identities[0].match[0]: sub: names come from bearer tokens, and there is no tokens: section",
		}},
		"half a tokens section": {roles + identities + "tokens:\n  issuer: x\n", []string{
			"p.yaml:4: tokens: audience is needed", "p.yaml:4: tokens: keys is needed",
		}},
		"bad limits": {roles + identities + "limits:\n  watches: -1\n  list_bytes: 3 fishes\n  watch: 1\n", []string{
			"p.yaml:4: limits.watches: want a whole number; 0: no limit", `p.yaml:5: limits.list_bytes: "3 fishes" is not a size`,
			`p.yaml:6: limits: unknown field "watch": use connections, streams, watches, creates_per_second, list_bytes`,
		}},
		"an alias": {"roles: {r: &a [{verbs: [read], all: true}], q: *a}\n" + identities, []string{"p.yaml:1: roles.q: want a list"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := policy.Parse("p.yaml", []byte(c.text))
			if err == nil || p != nil {
				t.Fatal("the file is accepted")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Errorf("%d mistakes are named, want %d:\n%v", len(lines), len(c.want), err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got  %v\nwant %s", err, want)
				}
			}
		})
	}
}

func TestTokensKeysAreNextToThePolicy(t *testing.T) {
	if got := parse(t, example).Tokens.KeysFile; got != "dir/jwks.json" {
		t.Errorf("got %s", got)
	}
}

// Any file is parsed or refused, and no parsed policy gives rights to a caller without an entry.
func FuzzParse(f *testing.F) {
	f.Add(example, "cn:ops")
	f.Add("roles: {r: [{verbs: [read], ranges: [{from: a}]}]}\nidentities: [{match: ['dns:*.x'], roles: [r]}]", "dns:a.x")
	f.Add("a: &a [*a]", "")
	f.Add(denying, "cn:web")
	f.Add("roles: {r: [{verbs: [read], all: true}, {deny: [read], ranges: [{from: b, to: c}, {from: x}], prefixes: [a]}]}\nidentities: [{match: [anonymous], roles: [r]}]", "")
	f.Add("roles: {r: [{verbs: [operator:read, operator:write]}, {deny: [operator:write]}]}\nlimits: {watch_key_bytes: 1MiB}\nidentities: [{match: ['uri:*'], roles: [r], limits: {connections: 0}}]", "uri:a")
	f.Fuzz(func(t *testing.T, text, name string) {
		p, err := policy.Parse("p.yaml", []byte(text))
		if err != nil {
			return
		}
		var names policy.Names
		if name != "" {
			names = policy.Names{name}
		}
		id := p.Identity(names)
		for _, v := range []policy.Verb{policy.Read, policy.Watch, policy.Write, policy.OperatorRead, policy.OperatorWrite} {
			for _, r := range []kv.Range{{}, kv.Single("a"), kv.Prefix("/pods/")} {
				allowed, because := p.Explain(names, v, r)
				if allowed != id.May(v, r) || len(because) == 0 {
					t.Errorf("%v %v: May returns %v, the explanation %v: %q", v, r, id.May(v, r), allowed, because)
				}
				if allowed && len(id.Roles) == 0 {
					t.Error("allowed without a role")
				}
			}
		}
	})
}
