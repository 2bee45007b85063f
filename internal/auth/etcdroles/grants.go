package etcdroles

import (
	"errors"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// RootRole is the role with all rights, by its name alone (etcd's auth/store.go).
const RootRole = "root"

// Permission is a permission of a role, as etcd stores it.
type Permission struct {
	// Key and RangeEnd are etcd's: an empty RangeEnd means the one key, "\x00" all keys from Key on.
	Key, RangeEnd string
	// Read: it allows reads; other permissions allow only writes.
	Read bool
}

// readable returns the keys that p allows to read; false: none. An invalid range, which only an old etcd could
// have stored, is no permission.
func (p Permission) readable() (kv.Range, bool) {
	if !p.Read {
		return kv.Range{}, false
	}
	r, err := kv.RangeFromEtcd(p.Key, p.RangeEnd)
	return r, err == nil
}

// Grants are etcd's users and roles.
type Grants struct {
	// Users has the roles of each user, Roles the permissions of each role. A missing role grants nothing.
	Users map[string][]string
	Roles map[string][]Permission
}

// Common returns the grants in both. If etcd changes between two readings, each may mix members
// and permissions of a role from different times, which etcd never granted together. The grants in
// both were in force together at a time between the readings.
func (g Grants) Common(o Grants) Grants {
	both := Grants{Users: make(map[string][]string, len(g.Users)), Roles: make(map[string][]Permission, len(g.Roles))}
	for name, roles := range g.Users {
		if others, ok := o.Users[name]; ok {
			both.Users[name] = common(roles, others)
		}
	}
	for name, permissions := range g.Roles {
		if others, ok := o.Roles[name]; ok {
			both.Roles[name] = common(permissions, others)
		}
	}
	return both
}

func common[T comparable](a, b []T) (both []T) {
	in := make(map[T]bool, len(b))
	for _, x := range b {
		in[x] = true
	}
	for _, x := range a {
		if in[x] {
			both = append(both, x)
		}
	}
	return both
}

// ErrUnreadable reports that this node's etcd account may not read etcd's users and roles.
var ErrUnreadable = errors.New("the account may not read etcd's users and roles")
