// Package mutant plants bugs on purpose, to show that the tests find them.
//
// A seam is a line of product code that asks [On] whether its bug is wanted.
// Without the build tag "mutants" the answer is a constant false, which the
// compiler leaves out with all that hangs on it. With the tag, one bug is on:
// the one that SHARDWATCH_MUTANT names in the environment.
//
// The bugs, and the test that must catch each, are in test/mutants; `make
// mutants` runs them.
package mutant
