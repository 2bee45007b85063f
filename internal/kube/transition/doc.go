// Package transition translates an event of a resource for selectors: an object that begins to
// match is added, an object that no longer matches is deleted, with its previous content (Kubernetes'
// watch semantics, storage/cacher). An [Event] encodes each of its frames once for all watches.
package transition
