//go:build linux && !race

package rawconn_test

import (
	"io"
	"testing"
)

// A read and a write do not allocate.
func TestTransfersAllocateNothing(t *testing.T) {
	a, b := connected(t)
	p := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := a.Write(p); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(b, p); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%.1f allocations", n)
	}
}
