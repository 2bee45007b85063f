package rights

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Table answers who may read what. The zero Table lets nobody read anything.
type Table struct {
	users map[string]*set
}

// set is what some users may read.
type set struct {
	root bool // everything
	// Invariant: ascending, and apart: between two of them lies a key that may
	// not be read. None is empty.
	ranges []kv.Range
}

// Table returns the grants, ready to be asked.
func (g Grants) Table() *Table {
	t := &Table{users: make(map[string]*set, len(g.Users))}
	sets := make(map[string]*set) // by the roles: many users have the same
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
				all = append(all, normal(r))
			}
		}
	}
	s.ranges = union(all)
	return s
}

// Users is the number of users.
func (t *Table) Users() int { return len(t.users) }

// MayRead reports whether user may read all of r. Who is not in the table may
// not.
func (t *Table) MayRead(user string, r kv.Range) bool {
	s := t.users[user]
	if s == nil {
		return false
	}
	return s.root || s.covers(normal(r))
}

// covers reports whether every key of r, which is normal, is in s.
func (s *set) covers(r kv.Range) bool {
	// The ranges are apart, so that r lies in one of them or is not covered:
	// only the last that does not begin behind r can be it.
	i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].Start > r.Start })
	return i > 0 && s.ranges[i-1].Covers(r)
}

// lowest is the lowest key there can be.
const lowest = "\x00"

// normal returns r with its start at a key that can be, because "" and lowest
// begin the same ranges, and the one key for a range that ends before it
// begins: such a range, of nothing, is for those who may read its key. (etcd
// says so, too, or denies it, as its tree happens to stand.)
func normal(r kv.Range) kv.Range {
	r.Start = max(r.Start, lowest)
	if r.End != "" && r.End <= r.Start {
		return kv.Single(r.Start)
	}
	return r
}

// union returns the keys that are in any of the ranges, which are normal, as
// ranges that ascend and are apart.
func union(all []kv.Range) (apart []kv.Range) {
	slices.SortFunc(all, func(a, b kv.Range) int { return cmp.Compare(a.Start, b.Start) })
	for _, r := range all {
		if len(apart) == 0 {
			apart = append(apart, r)
			continue
		}
		last := &apart[len(apart)-1]
		switch {
		case last.End == "": // it has all that follows
		case r.Start > last.End:
			apart = append(apart, r)
		case r.End == "" || r.End > last.End:
			last.End = r.End
		}
	}
	return apart
}
