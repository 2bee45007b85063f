package etcdroles_test

import (
	"math/rand/v2"
	"testing"

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// A model of etcd's keys and range ends, too simple to be wrong: it enumerates the keys.
//
// Ends are up to endLength long. If two ranges differ, they differ at an end, or at
// an end plus a zero byte, and these keys are in the universe.
const endLength = 2

// alphabet has the bytes at which mistakes in ranges are likely.
var alphabet = []byte{0x00, 'a', 'b', 0xff}

// universe are all keys of up to endLength+1 bytes of the alphabet.
func universe() (keys []string) {
	last := []string{""}
	for range endLength + 1 {
		var longer []string
		for _, k := range last {
			for _, b := range alphabet {
				longer = append(longer, k+string([]byte{b}))
			}
		}
		keys = append(keys, longer...)
		last = longer
	}
	return keys
}

// has reports whether k is in the range of etcd's key and end.
func has(key, end, k string) bool {
	switch end {
	case "":
		return k == key
	case "\x00":
		return k >= key
	}
	return key <= k && k < end
}

// allowed returns the verdict, key by key. An empty range needs the right to its start key.
func allowed(permissions []etcdroles.Permission, key, end string) bool {
	if end != "" && end != "\x00" && end <= key {
		end = ""
	}
	for _, k := range universe() {
		if !has(key, end, k) {
			continue
		}
		granted := false
		for _, p := range permissions {
			granted = granted || (p.Read && has(p.Key, p.RangeEnd, k))
		}
		if !granted {
			return false
		}
	}
	return true
}

// requested returns the range of etcd's key and end.
func requested(key, end string) kv.Range {
	if r, err := kv.RangeFromEtcd([]byte(key), []byte(end)); err == nil {
		return r
	}
	return kv.Range{Start: key, End: end}
}

func one(permissions []etcdroles.Permission) *etcdroles.Table {
	return etcdroles.Grants{Users: map[string][]string{"u": {"r"}}, Roles: map[string][]etcdroles.Permission{"r": permissions}}.Table()
}

// randomEnd returns a key or a range end.
func randomEnd(rng *rand.Rand, least int) string {
	b := make([]byte, least+rng.IntN(endLength-least+1))
	for i := range b {
		b[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return string(b)
}

// randomPermissions returns permissions that etcd accepts.
func randomPermissions(rng *rand.Rand) (permissions []etcdroles.Permission) {
	for range rng.IntN(6) {
		p := etcdroles.Permission{Key: randomEnd(rng, 1), RangeEnd: randomEnd(rng, 0), Read: rng.IntN(5) > 0}
		if p.RangeEnd == "" || p.RangeEnd == "\x00" || p.RangeEnd > p.Key {
			permissions = append(permissions, p)
		}
	}
	return permissions
}

func TestVerdictsOfAModel(t *testing.T) {
	rng := testseed.Rand(t)
	seen := map[bool]int{}
	for range 20_000 {
		permissions := randomPermissions(rng)
		key, end := randomEnd(rng, 1), randomEnd(rng, 0)
		want := allowed(permissions, key, end)
		if got := one(permissions).MayRead("u", requested(key, end)); got != want {
			t.Fatalf("%#v with %q: got %v, want %v", permissions, []string{key, end}, got, want)
		}
		seen[want]++
	}
	if seen[true] < 1000 || seen[false] < 1000 {
		t.Errorf("verdicts: %v: the test must try both", seen)
	}
}

// FuzzMayRead cuts its input into ends: the first two are the request.
func FuzzMayRead(f *testing.F) {
	f.Add([]byte("a\x01b\x01a\x01c"))
	f.Add([]byte("a\x01\x00\x01a\x01b\x01b\x01\x00"))
	f.Add([]byte("\x00\x01\x00\x01\x00\x01\x00"))
	f.Add([]byte("b\x01a\x01a\x01\x00"))
	f.Fuzz(func(t *testing.T, input []byte) {
		ends := []string{""}
		for _, b := range input {
			last := &ends[len(ends)-1]
			switch {
			case b == 1:
				ends = append(ends, "")
			case len(*last) < endLength:
				*last += string(alphabet[int(b)%len(alphabet):][:1])
			}
		}
		var permissions []etcdroles.Permission
		for i := 2; i+1 < len(ends); i += 2 {
			p := etcdroles.Permission{Key: ends[i], RangeEnd: ends[i+1], Read: true}
			// Permissions that current etcd accepts; all others must not grant anything.
			if p.Key != "" && (p.RangeEnd == "" || p.RangeEnd == "\x00" || p.RangeEnd > p.Key) {
				permissions = append(permissions, p)
			} else if one([]etcdroles.Permission{p}).MayRead("u", kv.Single("a")) {
				t.Fatalf("%#v is no permission", p)
			}
		}
		if len(ends) < 2 || ends[0] == "" {
			return
		}
		if got, want := one(permissions).MayRead("u", requested(ends[0], ends[1])), allowed(permissions, ends[0], ends[1]); got != want {
			t.Errorf("%#v with %q: got %v, want %v", permissions, ends[:2], got, want)
		}
	})
}
