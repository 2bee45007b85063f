package planner

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// splitOrdinal splits a name into the prefix before its trailing number, and the
// number; false when it ends in none. Nodes of a StatefulSet are numbered from 0.
func splitOrdinal(name shard.NodeID) (prefix string, ordinal int, ok bool) {
	prefix = strings.TrimRight(string(name), "0123456789")
	ordinal, err := strconv.Atoi(string(name[len(prefix):]))
	return prefix, ordinal, err == nil
}

// compareNames orders names by the prefix before their trailing number, then by the
// number: node-2 before node-10. A StatefulSet is scaled down from the end of
// this order.
func compareNames(a, b shard.NodeID) int {
	pa, na, oka := splitOrdinal(a)
	pb, nb, okb := splitOrdinal(b)
	if oka && okb && pa == pb && na != nb {
		return cmp.Compare(na, nb)
	}
	return cmp.Compare(a, b)
}

// numbered reports whether the names have one prefix, and differ in their ordinal.
func numbered(members []shard.Member) bool {
	first, _, _ := splitOrdinal(members[0].Name)
	return !slices.ContainsFunc(members, func(m shard.Member) bool {
		prefix, _, ok := splitOrdinal(m.Name)
		return !ok || prefix != first
	})
}

// firstOrdinals reports whether members, which are numbered and in order, begin
// with count consecutive ordinals from 0 or 1. If count is two or more, no
// other group of nodes has as many of these ordinals.
func firstOrdinals(members []shard.Member, count int) bool {
	_, first, _ := splitOrdinal(members[0].Name)
	_, last, _ := splitOrdinal(members[count-1].Name)
	return first <= 1 && last == first+count-1
}
