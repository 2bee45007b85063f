//go:build !linux

package netlimit

// awaitBytes does nothing: connections are accepted at once.
func awaitBytes(uintptr) {}
