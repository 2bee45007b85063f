package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/rights"
)

// Policy is a policy that was read. The zero Policy lets nobody do anything.
type Policy struct {
	// Tokens says which bearer tokens are taken; nil: none.
	Tokens *Tokens

	limits  partial
	roles   map[string][]rule
	entries []entry
}

// Tokens says which bearer tokens (JWTs) are taken.
type Tokens struct {
	Issuer, Audience string
	// KeysFile holds the issuer's public keys, as a JSON Web Key Set. A name that
	// is not absolute is relative to the policy's file.
	KeysFile string
}

// rule lets verbs be used on keys.
type rule struct {
	line  int
	verbs [verbs]bool
	keys  []kv.Range
}

// entry gives roles and limits to those whose names match.
type entry struct {
	line   int
	match  []pattern
	roles  []string
	limits partial
}

// Identity is what a policy says of a caller.
type Identity struct {
	// Name is for logs and limits: the name that the first entry matches that
	// speaks of certain names, else the caller's first.
	Name   string
	Names  Names
	Limits Limits
	// Roles are sorted.
	Roles []string

	keys [OperatorRead]rights.Keys
	acts [verbs]bool // of those that are not about keys
}

// Identity returns what the policy says of a caller with those names: the roles
// of every entry that matches one of them, and of each limit what the first
// entry says that sets it.
func (p *Policy) Identity(names Names) *Identity {
	id := &Identity{Name: names.First(), Names: names, Limits: p.limits.over(DefaultLimits())}
	for _, e := range slices.Backward(p.entries) { // the first has the last word on limits
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
	var keys [OperatorRead][]kv.Range
	for _, role := range id.Roles {
		for _, r := range p.roles[role] {
			for v := range verbs {
				switch {
				case !r.verbs[v]:
				case v.OfKeys():
					keys[v] = append(keys[v], r.keys...)
				default:
					id.acts[v] = true
				}
			}
		}
	}
	for v := range keys {
		id.keys[v] = rights.KeysOf(keys[v])
	}
	return id
}

func (e *entry) matches(names Names) bool {
	return slices.ContainsFunc(e.match, func(p pattern) bool { return p.matches(names) })
}

// named returns which of the names the entry matches; false: it speaks of none.
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

// May reports whether the caller may use the verb on all keys of r, which means
// nothing for verbs that are not about keys. An empty range is for callers who may
// use the verb on its key.
func (id *Identity) May(v Verb, r kv.Range) bool {
	if !v.OfKeys() {
		return id.acts[v]
	}
	return id.keys[v].Cover(r)
}

// Some reports whether there are keys on which the caller may use the verb.
func (id *Identity) Some(v Verb) bool {
	if !v.OfKeys() {
		return id.acts[v]
	}
	return !id.keys[v].None()
}

// Known reports whether the caller may do anything at all.
func (id *Identity) Known() bool {
	for v := range verbs {
		if id.Some(v) {
			return true
		}
	}
	return false
}

// Roles are the names of the policy's roles, and Identities the number of its
// entries.
func (p *Policy) Roles() []string {
	names := make([]string, 0, len(p.roles))
	for name := range p.roles {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Identities is the number of entries.
func (p *Policy) Identities() int { return len(p.entries) }

// Explain says whether a caller may use a verb on all keys of r, and because of
// which lines of the policy.
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
	var part []string
	for _, role := range id.Roles {
		for _, rule := range p.roles[role] {
			if !rule.verbs[v] {
				continue
			}
			if keys := rights.KeysOf(rule.keys); !v.OfKeys() || keys.Cover(r) {
				return true, append(because, fmt.Sprintf("line %d: role %s allows %s", rule.line, role, v.of(r)))
			}
			for _, k := range rule.keys {
				if k.Overlaps(r) {
					part = append(part, fmt.Sprintf("line %d: role %s allows %s of %v", rule.line, role, v, k))
				}
			}
		}
	}
	because = append(because, part...)
	if allowed = id.May(v, r); !allowed {
		because = append(because, fmt.Sprintf("no rule of these roles allows %s", v.of(r)))
	}
	return allowed, because
}

// of is what is wanted, for people.
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
