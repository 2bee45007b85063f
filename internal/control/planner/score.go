package planner

import (
	"math"
	"math/bits"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// The score of a shard on a node is the xxhash64 of the shard's seat and of the
// hash of the node's name, 8 bytes each, little-endian. A plan of a large cluster
// computes a hundred million scores, so the hash is written out here in two
// parts: start is the same for all nodes, and a node's lane for all shards. Its
// results must never change: they place the shards of running clusters.

const (
	prime1 = 11400714785074694791
	prime2 = 14029467366897019727
	prime3 = 1609587929392839161
	prime4 = 9650029242287828579
	prime5 = 2870177450012600261
)

// lane returns 8 bytes as xxhash transforms them before it mixes them in.
func lane(x uint64) uint64 { return bits.RotateLeft64(x*prime2, 31) * prime1 }

// start is the state of the hash after the seat.
func start(seat shard.ID) uint64 { return mix(prime5+16, lane(uint64(seat))) }

// score completes the hash.
func score(start, lane uint64) uint64 {
	h := mix(start, lane)
	h ^= h >> 33
	h *= prime2
	h ^= h >> 29
	h *= prime3
	return h ^ h>>32
}

func mix(h, lane uint64) uint64 { return bits.RotateLeft64(h^lane, 27)*prime1 + prime4 }

// weightOf returns the member's weight, from 1 to MaxWeight.
func weightOf(m *shard.Member) int { return min(max(m.Weight, 1), shard.MaxWeight) }

// weigh returns the score of weighted rendezvous hashing, greater is better: weight /
// -ln(score / 2^64). A node of weight 2 comes first twice as often as one of weight 1,
// and when a weight changes, only shards of that node move. Nodes of equal weight are
// ordered by their scores.
func weigh(score uint64, weight int) uint64 {
	gap := (float64(^score) + 0.5) / (1 << 64) // 1 - score/2^64, exact for large scores
	return math.Float64bits(float64(weight) / -math.Log1p(-min(gap, 1)))
}
