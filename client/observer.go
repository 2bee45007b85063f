package client

import "time"

// Observer learns what a client does, for metrics and traces. A function that is nil is
// not called. The functions are called by the goroutines that do the work, several at
// once: they must return at once, and not call methods of the client, its watchers or its
// mirrors.
type Observer struct {
	// Attempt is called after each attempt of a read, a write or [Client.Call] at a node.
	Attempt func(Attempt)
	// Resume is called when a watch has resumed at a node, for every watch of the client.
	Resume func(Range, Resume)
	// Unit is called when a unit has arrived whole: a state, delta, resync or conflated one,
	// with the number of its keys.
	Unit func(r Range, kind UpdateKind, keys int)
}

// Attempt is one attempt of a call at a node.
type Attempt struct {
	// Range holds the keys that the call is about.
	Range Range
	// Node is the address of the node.
	Node string
	// Took is how long the attempt took: a list's until its last key was taken.
	Took time.Duration
	// Err is why it failed; nil: the node answered.
	Err error
}

// observeLocked has f called once the watcher's lock is released.
func (w *Watcher) observeLocked(f func()) { w.observed = append(w.observed, f) }

// takeObservedLocked returns what is to be called without the lock.
func (w *Watcher) takeObservedLocked() []func() {
	out := w.observed
	w.observed = nil
	return out
}
