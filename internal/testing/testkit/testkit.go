// Package testkit helps tests of all packages: it waits for conditions, and skips tests that lack something.
package testkit

import (
	"os"
	"testing"
	"time"
)

// Patience bounds the wait of a test for an expected condition. A passing test never waits that
// long.
const Patience = 2 * time.Minute

// pause is the time between two checks.
const pause = 5 * time.Millisecond

// Eventually polls until ok returns true, and ends the test after Patience.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(pause) {
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Succeeds retries until try returns no error, and after Patience ends the test with the last
// error.
func Succeeds(tb testing.TB, what string, try func() error) {
	tb.Helper()
	var err error
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(pause) {
		if err = try(); err == nil {
			return
		}
	}
	tb.Fatalf("not within %v: %s: %v", Patience, what, err)
}

// Missing skips a test that lacks a program or packages, and names them. It fails the test if
// COMPAT is in the environment, as make compat sets it: that run must not pass because its
// tests were skipped.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("COMPAT") != "" {
		tb.Fatalf(format, args...)
	}
	tb.Skipf(format, args...)
}
