package etcdroles

import (
	"fmt"
	"slices"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Table has the keys that each user may read. The zero Table denies everything.
type Table struct {
	users map[string]*set
}

// Root reports whether user has etcd's root role.
func (t *Table) Root(user string) bool {
	s := t.users[user]
	return s != nil && s.root
}

// Has reports whether the user exists.
func (t *Table) Has(user string) bool { return t.users[user] != nil }

// set is the keys that a user may read.
type set struct {
	root bool // everything
	keys Keys
}

// Table returns the grants as a Table.
func (g Grants) Table() *Table {
	t := &Table{users: make(map[string]*set, len(g.Users))}
	sets := make(map[string]*set) // by roles: many users have the same
	for name, roles := range g.Users {
		roles = slices.Sorted(slices.Values(roles))
		id := fmt.Sprintf("%q", roles)
		s := sets[id]
		if s == nil {
			s = g.set(roles)
			sets[id] = s
		}
		t.users[name] = s
	}
	return t
}

func (g Grants) set(roles []string) *set {
	s := &set{}
	var all []kv.Range
	for _, role := range roles {
		if role == RootRole {
			s.root = true
		}
		for _, p := range g.Roles[role] {
			if r, ok := p.readable(); ok {
				all = append(all, r)
			}
		}
	}
	s.keys = KeysOf(all)
	return s
}

// Users returns the number of users.
func (t *Table) Users() int { return len(t.users) }

// MayRead reports whether user may read all of r. A user outside the table may read nothing.
func (t *Table) MayRead(user string, r kv.Range) bool {
	s := t.users[user]
	if s == nil {
		return false
	}
	return s.root || s.keys.Cover(r)
}
