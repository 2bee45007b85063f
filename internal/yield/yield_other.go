//go:build !linux

package yield

import "runtime"

// Now lets goroutines that are ready to run go first.
func Now() { runtime.Gosched() }
