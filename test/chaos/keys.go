package chaos

import (
	"fmt"
	"math/rand/v2"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// keyspace is the keys of a run: prefixes at which shards can be cut, and the keys of each.
type keyspace struct {
	prefixes, keys int
}

// prefix returns the i-th prefix, with its slash.
func (k keyspace) prefix(i int) string { return fmt.Sprintf("/p%02d/", i) }

// key returns the j-th key of the i-th prefix.
func (k keyspace) key(i, j int) string { return fmt.Sprintf("/p%02d/k%04d", i, j) }

// any returns a key at random.
func (k keyspace) any(rng *rand.Rand) string {
	return k.key(rng.IntN(k.prefixes), rng.IntN(k.keys))
}

// value returns 64 to 512 random bytes. Seven of eight values are JSON; the eighth lacks its end,
// so that the program settings cannot decode it.
func value(rng *rand.Rand) string {
	const open, end = `{"v":"`, `"}`
	b := []byte(open)
	for range 64 - len(open) - len(end) + rng.IntN(449) {
		b = append(b, byte('a'+rng.Uint32()%26))
	}
	if rng.IntN(8) == 0 {
		return string(append(b, "zz"...))
	}
	return string(append(b, end...))
}

// anyPrefix returns the range of the first prefix.
func (k keyspace) anyPrefix() kv.Range { return kv.Prefix(k.prefix(0)) }
