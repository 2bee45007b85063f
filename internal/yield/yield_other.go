//go:build !linux

package yield

// Now lets goroutines that are ready to run go first.
func Now() { gosched() }
