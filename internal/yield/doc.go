// Package yield lets short work run before long work, in Go and in the kernel. Long work calls [Now] about
// every 0.1 ms, or counts its [Steps].
package yield
