//go:build !linux

package rawconn

import "runtime"

// Yield lets goroutines that are ready to run go first.
func Yield() { runtime.Gosched() }
