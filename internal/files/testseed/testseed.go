// Package testseed provides the seeds of random tests. It belongs to this module because
// the tests of all modules use it.
//
// A test has the same seed in each run, so that a change fails a test only if it broke
// something. `make seeds` searches for errors with other seeds.
package testseed

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Variable is the environment variable that sets the seed of all tests: a number, or Random.
const Variable = "TEST_SEED"

// Random is the value of Variable that selects a new seed at each call of Of.
const Random = "random"

// Of returns the seed of a test, and logs the setting of Variable that repeats the run.
// Without Variable the seed is derived from the test's name, subtests included. Of ends the
// test when the variable is neither a number of 64 bits nor Random.
func Of(tb testing.TB) uint64 {
	tb.Helper()
	seed, err := choose(os.Getenv(Variable), tb.Name())
	if err != nil {
		tb.Fatalf("%s: %v: set a number or %q", Variable, err, Random)
	}
	tb.Logf("%s=%d", Variable, seed)
	return seed
}

// Rand returns a generator that begins with Of's seed.
func Rand(tb testing.TB) *rand.Rand {
	tb.Helper()
	return rand.New(rand.NewPCG(Of(tb), 0))
}

func choose(set, name string) (uint64, error) {
	switch set {
	case "":
		h := fnv.New64a()
		_, _ = h.Write([]byte(name)) // never fails
		return h.Sum64(), nil
	case Random:
		return rand.Uint64(), nil
	}
	return strconv.ParseUint(set, 10, 64)
}
