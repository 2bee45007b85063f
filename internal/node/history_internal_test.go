package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A node that stops does not wait for a disk that hangs, neither before its last save begins nor
// during it.
func TestLastSaveIsBounded(t *testing.T) {
	for name, taken := range map[string]bool{"a save hangs": false, "the last save hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &historian{begun: make(chan struct{}), ended: make(chan struct{}), tasks: make(chan func())}
				close(h.begun)
				if taken {
					go func() { <-h.tasks }() // and never ends it
				}
				began := time.Now()
				h.last(context.WithoutCancel(t.Context()))
				if took := time.Since(began); took != lastSave {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}
