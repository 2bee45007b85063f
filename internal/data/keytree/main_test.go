package keytree

import (
	"math/rand/v2"
	"testing"
)

// newRand returns a generator whose seed is in the test's output.
func newRand(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := rand.Uint64()
	tb.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
