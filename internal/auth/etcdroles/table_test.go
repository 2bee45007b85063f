package etcdroles_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/kv"
)

func read(key, end string) etcdroles.Permission {
	return etcdroles.Permission{Key: key, RangeEnd: end, Read: true}
}

func TestMayRead(t *testing.T) {
	everything := kv.Range{}
	for _, c := range []struct {
		name        string
		permissions []etcdroles.Permission
		r           kv.Range
		want        bool
	}{
		{"nothing granted", nil, kv.Single("a"), false},
		{"a key", []etcdroles.Permission{read("a", "")}, kv.Single("a"), true},
		{"a key is no prefix", []etcdroles.Permission{read("a", "")}, kv.Prefix("a"), false},
		{"a key after it", []etcdroles.Permission{read("a", "")}, kv.Single("a\x00"), false},
		{"only to write", []etcdroles.Permission{{Key: "a"}}, kv.Single("a"), false},
		{"a prefix", []etcdroles.Permission{read("/a/", "/a0")}, kv.Prefix("/a/"), true},
		{"a part of a prefix", []etcdroles.Permission{read("/a/", "/a0")}, kv.Prefix("/a/b/"), true},
		{"beyond a prefix", []etcdroles.Permission{read("/a/", "/a0")}, kv.Prefix("/a"), false},
		// etcd's GHSA-xg4h-6gfc-h4m8.
		{"from a key of a prefix on", []etcdroles.Permission{read("/a/", "/a0")}, kv.Range{Start: "/a/b"}, false},
		{"from a prefix's first key on", []etcdroles.Permission{read("/a/", "/a0")}, kv.Range{Start: "/a/"}, false},
		{"everything for a prefix", []etcdroles.Permission{read("/a/", "/a0")}, everything, false},
		{"an open end", []etcdroles.Permission{read("b", "\x00")}, kv.Range{Start: "c"}, true},
		{"a bounded part of an open end", []etcdroles.Permission{read("b", "\x00")}, kv.Range{Start: "b", End: "\xff\xff"}, true},
		{"before an open end", []etcdroles.Permission{read("b", "\x00")}, kv.Range{Start: "a"}, false},
		{"everything", []etcdroles.Permission{read("\x00", "\x00")}, everything, true},
		{"everything in two halves", []etcdroles.Permission{read("\x00", "m"), read("m", "\x00")}, everything, true},
		{"everything but a key", []etcdroles.Permission{read("\x00", "m"), read("m\x00", "\x00")}, everything, false},
		{"all but the lowest key", []etcdroles.Permission{read("\x00\x00", "\x00")}, everything, false},
		{"the lowest key and all others", []etcdroles.Permission{read("\x00\x00", "\x00"), read("\x00", "")}, everything, true},
		{"neighbours", []etcdroles.Permission{read("c", "d"), read("a", "b"), read("b", "c")}, kv.Range{Start: "a", End: "d"}, true},
		{"a hole", []etcdroles.Permission{read("c", "d"), read("a", "b")}, kv.Range{Start: "a", End: "d"}, false},
		{"a key fills a hole", []etcdroles.Permission{read("a", "b"), read("b\x00", "c"), read("b", "")}, kv.Range{Start: "a", End: "c"}, true},
		{"one inside another", []etcdroles.Permission{read("a", "z"), read("b", "c")}, kv.Range{Start: "b", End: "y"}, true},
		{"nothing, from a readable key", []etcdroles.Permission{read("b", "c")}, kv.Range{Start: "b", End: "a"}, true},
		{"nothing, from another key", []etcdroles.Permission{read("a", "b")}, kv.Range{Start: "b", End: "a"}, false},
		// Permissions that current etcd does not store.
		{"no key", []etcdroles.Permission{read("", "\x00")}, kv.Single("a"), false},
		{"a range turned round", []etcdroles.Permission{read("z", "a")}, kv.Single("m"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := one(c.permissions).MayRead("u", c.r); got != c.want {
				t.Errorf("got %v", got)
			}
			if one(c.permissions).MayRead("somebody else", c.r) {
				t.Error("somebody else may, too")
			}
		})
	}
}

func TestUsersAndRoles(t *testing.T) {
	table := etcdroles.Grants{
		Users: map[string][]string{
			"ann": {"a", "b"}, "bob": {"b"}, "cid": {"none such"}, "dan": nil,
			// Roles whose concatenated names equal other roles' names.
			"eve": {"a\x00b"}, "fay": {"a b"}, "gus": {`a" "b`},
			"op": {"b", etcdroles.RootRole}, etcdroles.RootRole: {"b"},
		},
		Roles: map[string][]etcdroles.Permission{
			"a": {read("a", "")}, "b": {read("b", "")}, "a\x00b": {read("e", "")}, "a b": {read("f", "")}, `a" "b`: {read("g", "")},
		},
	}.Table()
	for user, want := range map[string]string{
		"ann": "ab", "bob": "b", "cid": "", "dan": "", "eve": "e", "fay": "f", "gus": "g", "op": "abcdefg", etcdroles.RootRole: "b", "": "", "nobody": "",
	} {
		var got []byte
		for _, key := range []byte("abcdefg") {
			if table.MayRead(user, kv.Single(string(key))) {
				got = append(got, key)
			}
		}
		if string(got) != want {
			t.Errorf("%q may read %q, want %q", user, got, want)
		}
		if everything := table.MayRead(user, kv.Range{}); everything != (user == "op") {
			t.Errorf("%q may read everything: %v", user, everything)
		}
	}
	if table.Users() != 9 || new(etcdroles.Table).MayRead("ann", kv.Single("a")) {
		t.Error("wrong number of users, or an empty table grants a right")
	}
}

func TestCommon(t *testing.T) {
	a := etcdroles.Grants{
		Users: map[string][]string{"ann": {"x", "y"}, "bob": {"x"}, "cid": {"x"}},
		Roles: map[string][]etcdroles.Permission{"x": {read("a", "b"), read("c", "")}, "y": {read("y", "")}},
	}
	b := etcdroles.Grants{
		Users: map[string][]string{"ann": {"y", "z"}, "bob": {"x"}, "dan": {"x"}},
		Roles: map[string][]etcdroles.Permission{"x": {read("a", "c"), read("c", "")}, "z": {read("z", "")}},
	}
	got := a.Common(b)
	if !maps.EqualFunc(got.Users, map[string][]string{"ann": {"y"}, "bob": {"x"}}, slices.Equal) ||
		!maps.EqualFunc(got.Roles, map[string][]etcdroles.Permission{"x": {read("c", "")}}, slices.Equal) {
		t.Errorf("got %+v", got)
	}
}

func BenchmarkMayRead(b *testing.B) {
	var permissions []etcdroles.Permission
	for i := range 1000 {
		key := string([]byte{byte(i >> 8), byte(i), '/'})
		permissions = append(permissions, read(key, kv.PrefixEnd(key)))
	}
	table := one(permissions)
	for b.Loop() {
		if !table.MayRead("u", kv.Range{Start: "\x01\x02/a", End: "\x01\x02/b"}) {
			b.Fatal("denied")
		}
	}
}
