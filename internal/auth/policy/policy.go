package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Policy is a parsed policy. The zero Policy denies everything.
type Policy struct {
	// Tokens configures the accepted bearer tokens; nil: none.
	Tokens *Tokens

	limits  partial
	roles   map[string][]rule
	entries []entry
}

// Tokens configures the accepted bearer tokens (JWTs).
type Tokens struct {
	Issuer, Audience string
	// KeysFile holds the issuer's public keys, as a JSON Web Key Set. A relative name is relative to the policy
	// file.
	KeysFile string
}

// rule allows or denies verbs on keys.
type rule struct {
	line  int
	deny  bool
	verbs [verbs]bool
	keys  []kv.Range
}

func (r *rule) word() string {
	if r.deny {
		return "denies"
	}
	return "allows"
}

// entry gives roles and limits to callers with a matching name.
type entry struct {
	line   int
	match  []pattern
	roles  []string
	limits partial
}

// Identity is the rights and limits of a caller.
type Identity struct {
	// Name is for logs and limits: the name matched by the first entry that matches by a name, else the
	// caller's first name.
	Name   string
	Names  Names
	Limits Limits
	// Roles are sorted.
	Roles []string

	keys [OperatorRead]etcdroles.Keys
	acts [verbs]bool // of verbs without keys
}

// Identity returns the rights and limits of a caller with those names: the roles of every entry
// that matches one of them, and each limit from the first such entry that sets it. A key that any
// rule of the roles denies is denied, even if other rules allow it.
func (p *Policy) Identity(names Names) *Identity {
	id := &Identity{Name: names.First(), Names: names, Limits: p.limits.over(DefaultLimits())}
	for _, e := range slices.Backward(p.entries) { // the first entry overrides the limits of later ones
		if e.matches(names) {
			id.Roles = append(id.Roles, e.roles...)
			id.Limits = e.limits.over(id.Limits)
		}
	}
	for _, e := range p.entries {
		if name, ok := e.named(names); ok {
			id.Name = name
			break
		}
	}
	slices.Sort(id.Roles)
	id.Roles = slices.Compact(id.Roles)
	allowed, denied := p.rules(id.Roles, false), p.rules(id.Roles, true)
	for v := range verbs {
		if v.OfKeys() {
			id.keys[v] = etcdroles.KeysOf(allowed.keys[v]).Without(etcdroles.KeysOf(denied.keys[v]))
		} else {
			id.acts[v] = allowed.acts[v] && !denied.acts[v]
		}
	}
	return id
}

// granted has the keys and acts of rules, by verb.
type granted struct {
	keys [OperatorRead][]kv.Range
	acts [verbs]bool
}

// rules returns the keys and acts that the rules of roles allow or deny.
func (p *Policy) rules(roles []string, deny bool) (out granted) {
	for _, role := range roles {
		for _, r := range p.roles[role] {
			if r.deny != deny {
				continue
			}
			for v := range verbs {
				switch {
				case !r.verbs[v]:
				case v.OfKeys():
					out.keys[v] = append(out.keys[v], r.keys...)
				default:
					out.acts[v] = true
				}
			}
		}
	}
	return out
}

func (e *entry) matches(names Names) bool {
	return slices.ContainsFunc(e.match, func(p pattern) bool { return p.matches(names) })
}

// named returns the first name that the entry matches by a name; false: there is none.
func (e *entry) named(names Names) (string, bool) {
	for _, p := range e.match {
		if p.kind() == "" {
			continue
		}
		if i := slices.IndexFunc(names, func(name string) bool { return p.matches(Names{name}) }); i >= 0 {
			return names[i], true
		}
	}
	return "", false
}

// May reports whether the caller may use the verb on all keys of r, which is ignored for verbs without keys. An
// empty range needs the right to its start key.
func (id *Identity) May(v Verb, r kv.Range) bool {
	if !v.OfKeys() {
		return id.acts[v]
	}
	return id.keys[v].Cover(r)
}

// Some reports whether the caller may use the verb on any key.
func (id *Identity) Some(v Verb) bool {
	if !v.OfKeys() {
		return id.acts[v]
	}
	return !id.keys[v].None()
}

// Known reports whether the caller has some right.
func (id *Identity) Known() bool {
	for v := range verbs {
		if id.Some(v) {
			return true
		}
	}
	return false
}

// Roles returns the names of the policy's roles, sorted.
func (p *Policy) Roles() []string {
	names := make([]string, 0, len(p.roles))
	for name := range p.roles {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Limits returns the limits of an identity without limits of its own.
func (p *Policy) Limits() Limits { return p.limits.over(DefaultLimits()) }

// Identities returns the number of entries.
func (p *Policy) Identities() int { return len(p.entries) }

// Explain reports whether a caller may use a verb on all keys of r, and the lines of the policy that decide it.
func (p *Policy) Explain(names Names, v Verb, r kv.Range) (allowed bool, because []string) {
	id := p.Identity(names)
	for _, e := range p.entries {
		if e.matches(names) {
			because = append(because, fmt.Sprintf("line %d: %s has %s", e.line, id.Name, rolesOf(e.roles)))
		}
	}
	if len(because) == 0 {
		return false, []string{fmt.Sprintf("no entry of identities matches %s", id.Name)}
	}
	allowed = id.May(v, r)
	var part []string
	denied := false
	for _, role := range id.Roles {
		for _, rule := range p.roles[role] {
			if !rule.verbs[v] {
				continue
			}
			all := !v.OfKeys()
			if !all {
				keys := etcdroles.KeysOf(rule.keys)
				all = keys.Cover(r)
			}
			if all && allowed != rule.deny {
				return allowed, append(because, fmt.Sprintf("line %d: role %s %s %s", rule.line, role, rule.word(), v.of(r)))
			}
			for _, k := range rule.keys {
				if k.Overlaps(r) {
					denied = denied || rule.deny
					part = append(part, fmt.Sprintf("line %d: role %s %s %s of %v", rule.line, role, rule.word(), v, k))
				}
			}
		}
	}
	because = append(because, part...)
	switch {
	case allowed:
	case denied:
		because = append(because, "a deny overrides every rule that allows")
	default:
		because = append(because, fmt.Sprintf("no rule of these roles allows %s", v.of(r)))
	}
	return allowed, because
}

// of describes the use of the verb on a range, for messages.
func (v Verb) of(r kv.Range) string {
	if !v.OfKeys() {
		return v.String()
	}
	return fmt.Sprintf("%s of %v", v, r)
}

func rolesOf(names []string) string {
	switch len(names) {
	case 0:
		return "no role"
	case 1:
		return "role " + names[0]
	}
	return "roles " + strings.Join(names, ", ")
}
