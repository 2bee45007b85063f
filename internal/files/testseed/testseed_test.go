package testseed

import "testing"

func TestChoose(t *testing.T) {
	must := func(set, name string) uint64 {
		t.Helper()
		seed, err := choose(set, name)
		if err != nil {
			t.Fatalf("%q of %q: %v", set, name, err)
		}
		return seed
	}
	if a, b := must("", "TestA/x"), must("", "TestA/x"); a != b {
		t.Errorf("the same test has the seeds %d and %d", a, b)
	}
	if a, b := must("", "TestA/x"), must("", "TestA/y"); a == b {
		t.Errorf("two tests have the same seed %d", a)
	}
	if a, b := must(Random, "TestA"), must(Random, "TestA"); a == b {
		t.Errorf("two random seeds are the same: %d", a)
	}
	if a := must("18446744073709551615", "TestA"); a != 1<<64-1 {
		t.Errorf("the seed is %d, not the one that was set", a)
	}
	for _, bad := range []string{"-1", "x", "18446744073709551616"} {
		if _, err := choose(bad, "TestA"); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// A test repeats with the seed that Of logs.
func TestASeedIsRepeated(t *testing.T) {
	t.Setenv(Variable, "42")
	if a, b := Rand(t).Uint64(), Rand(t).Uint64(); a != b {
		t.Errorf("the same seed yields %d and %d", a, b)
	}
	if seed := Of(t); seed != 42 {
		t.Errorf("the seed is %d, want 42", seed)
	}
}
