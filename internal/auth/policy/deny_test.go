package policy_test

import (
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
)

const denying = `
roles:
  all:
    - verbs: [read, watch, write]
      all: true
    - verbs: [operator:read, operator:write]
  no-secrets:
    - deny: [read, watch]
      prefixes: [/secrets/]
    - deny: [operator:write]
  banned:
    - deny: [read, watch, write]
      all: true
    - deny: [operator:read, operator:write]
identities:
  - match: ["cn:mallory"]
    roles: [banned]
  - match: ["cn:web"]
    roles: [no-secrets]
  - match: [authenticated]
    roles: [all]
`

// A deny overrides all rules that allow, in whichever role or entry, and a range with one denied key is denied.
func TestADenyRuleWins(t *testing.T) {
	p := parse(t, denying)
	for _, c := range []struct {
		name string
		verb policy.Verb
		r    kv.Range
		want bool
		says string
	}{
		{"cn:web", policy.Read, kv.Single("/a"), true, "line 4: role all allows read"},
		{"cn:web", policy.Read, kv.Single("/secrets/a"), false, `line 8: role no-secrets denies read of "/secrets/a"`},
		{"cn:web", policy.Read, kv.Single("/secrets0"), true, "allows"},
		{"cn:web", policy.Watch, kv.Range{}, false, `line 8: role no-secrets denies watch of ["/secrets/", "/secrets0")`},
		{"cn:web", policy.Watch, kv.Range{Start: "/a", End: "/secrets/"}, true, "allows"},
		{"cn:web", policy.Watch, kv.Range{Start: "/a", End: "/secrets/\x00"}, false, "a deny overrides every rule that allows"},
		{"cn:web", policy.Write, kv.Single("/secrets/a"), true, "allows"},
		{"cn:web", policy.OperatorRead, kv.Range{}, true, "allows operator:read"},
		{"cn:web", policy.OperatorWrite, kv.Range{}, false, "line 10: role no-secrets denies operator:write"},
		{"cn:other", policy.Watch, kv.Range{}, true, "allows"},
		{"cn:other", policy.OperatorWrite, kv.Range{}, true, "allows"},
		{"cn:mallory", policy.Read, kv.Single("/a"), false, "role banned denies"},
		{"cn:mallory", policy.OperatorRead, kv.Range{}, false, "role banned denies"},
	} {
		id := p.Identity(policy.Names{c.name})
		if got := id.May(c.verb, c.r); got != c.want {
			t.Errorf("%s %v %v: %v", c.name, c.verb, c.r, got)
		}
		got, because := p.Explain(id.Names, c.verb, c.r)
		if text := strings.Join(because, "\n"); got != c.want || !strings.Contains(text, c.says) {
			t.Errorf("%s %v %v: %v, %s; want %q", c.name, c.verb, c.r, got, text, c.says)
		}
	}
	if p.Identity(policy.Names{"cn:mallory"}).Known() {
		t.Error("a caller without any remaining right counts as known")
	}
}

// With rules in any order, a caller may use a verb on a range if a rule allows each of
// its keys and none denies one.
func TestDenyRulesAgainstAModel(t *testing.T) {
	rnd := testseed.Rand(t)
	const keys = "abcdefgh" // also the ends of ranges; "" is no end
	for range 2000 {
		type rule struct {
			deny     bool
			from, to int // to len(keys): no end
		}
		var rules []rule
		var text strings.Builder
		text.WriteString("roles:\n  r:\n")
		for range 1 + rnd.IntN(5) {
			from := rnd.IntN(len(keys))
			r := rule{rnd.IntN(2) == 0, from, from + 1 + rnd.IntN(len(keys)-from)}
			rules = append(rules, r)
			text.WriteString("    - {" + map[bool]string{true: "deny", false: "verbs"}[r.deny] + ": [read], ranges: [{from: " + keys[r.from:r.from+1])
			if r.to < len(keys) {
				text.WriteString(", to: " + keys[r.to:r.to+1])
			}
			text.WriteString("}]}\n")
		}
		text.WriteString("identities: [{match: [anonymous], roles: [r]}]\n")
		id := parse(t, text.String()).Identity(nil)
		for from := range len(keys) {
			for to := from + 1; to <= len(keys); to++ {
				want := true
				for k := from; k < to; k++ { // each letter stands for all keys with this prefix
					allowed, denied := false, false
					for _, r := range rules {
						if r.from <= k && k < r.to {
							allowed, denied = allowed || !r.deny, denied || r.deny
						}
					}
					want = want && allowed && !denied
				}
				q := kv.Range{Start: keys[from : from+1]}
				if to < len(keys) {
					q.End = keys[to : to+1]
				}
				if got := id.May(policy.Read, q); got != want {
					t.Fatalf("%v: %v\n%s", q, got, text.String())
				}
			}
		}
	}
}
