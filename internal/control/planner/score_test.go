package planner

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/shard"
)

func TestScoreIsXXHash(t *testing.T) {
	for range 1000 {
		seat, node := rand.Uint64(), rand.Uint64()
		b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, seat), node)
		if got, want := score(start(shard.ID(seat)), lane(node)), xxhash.Sum64(b); got != want {
			t.Fatalf("score(%#x, %#x) = %#x, want %#x", seat, node, got, want)
		}
	}
}
