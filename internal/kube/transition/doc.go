// Package transition is how one event of a resource looks through selectors: an object that begins to
// match is added, one that ends to match is deleted, with its previous content (Kubernetes' watch
// semantics, storage/cacher). An [Event] encodes each of its frames once for all watches.
package transition
