package testkit

import (
	"fmt"
	"testing"
)

// recorder is a test that records how it ends.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) { r.end("skipped", format, args) }

func (r *recorder) Fatalf(format string, args ...any) { r.end("failed", format, args) }

func (r *recorder) end(how, format string, args []any) {
	if r.ended == "" { // a real test ends at the first call
		r.ended = how + ": " + fmt.Sprintf(format, args...)
	}
}

func TestMissing(t *testing.T) {
	for compat, want := range map[string]string{"": "skipped: no etcdctl 3.4", "1": "failed: no etcdctl 3.4"} {
		t.Setenv("COMPAT", compat)
		r := &recorder{TB: t}
		if Missing(r, "no %s %s", "etcdctl", "3.4"); r.ended != want {
			t.Errorf("COMPAT=%q: %s, want %s", compat, r.ended, want)
		}
	}
}
