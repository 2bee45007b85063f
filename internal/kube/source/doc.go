// Package source is the door to kube-apiservers: it follows one resource in one
// encoding with a streaming list and a watch, as a source of a cache.
//
// Read [Source.Follow] first. A [Client] and its sources may be used from any
// goroutine. A source holds no state of the resource, only one event, or a list that
// is being read. The consumer holds the state.
package source
