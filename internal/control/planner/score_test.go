package planner

import (
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/shard"
)

func TestScoreIsXXHash(t *testing.T) {
	rng := testseed.Rand(t)
	for range 1000 {
		seat, node := rng.Uint64(), rng.Uint64()
		b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, seat), node)
		if got, want := score(start(shard.ID(seat)), lane(node)), xxhash.Sum64(b); got != want {
			t.Fatalf("score(%#x, %#x) = %#x, want %#x", seat, node, got, want)
		}
	}
}
