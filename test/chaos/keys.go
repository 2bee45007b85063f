package chaos

import (
	"fmt"
	"math/rand/v2"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// keyspace is the keys of a run: prefixes that shards can be cut at, and keys
// below each.
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

// value returns 64 to 512 random bytes.
func value(rng *rand.Rand) string {
	b := make([]byte, 64+rng.IntN(449))
	for i := range b {
		b[i] = byte('a' + rng.Uint32()%26)
	}
	return string(b)
}

// anyPrefix returns the range of the first prefix.
func (k keyspace) anyPrefix() kv.Range { return kv.Prefix(k.prefix(0)) }
