// Package yield has long work let short work go first, in Go and in the kernel. Work that
// computes calls [Now] every 0.1 ms or so, or counts its [Steps].
package yield
