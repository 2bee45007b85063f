// Package source reads from kube-apiservers: it follows one resource in one encoding
// with a streaming list and a watch, as a source of a cache.
//
// Read [Source.Follow] first. A [Client] and its sources may be used from any
// goroutine. A source holds only the current event or list in memory. The consumer
// holds the state.
package source
