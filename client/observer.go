package client

import "time"

// Observer receives the actions of a client, for metrics and traces. A nil function is
// not called. The client's goroutines call the functions while they work, several at
// once: a function must return at once, and must not call methods of the client, its
// watchers or its mirrors.
type Observer struct {
	// Attempt is called after each attempt of a read, a write or [Client.Call] at a node.
	Attempt func(Attempt)
	// Resume is called when any watch of the client has resumed on a node.
	Resume func(Range, Resume)
	// Unit is called when a unit (a state, delta, resync or conflated one) has arrived
	// whole, with the number of its keys.
	Unit func(r Range, kind UpdateKind, keys int)
}

// Attempt is one attempt of a call at a node.
type Attempt struct {
	// Range holds the keys of the call.
	Range Range
	// Node is the address of the node.
	Node string
	// Took is the duration of the attempt; for a list, until the consumer took its last key.
	Took time.Duration
	// Err is the reason why the attempt failed; nil: the node answered.
	Err error
}

// observeLocked registers f to be called once the watcher's lock is released.
func (w *Watcher) observeLocked(f func()) { w.observed = append(w.observed, f) }

// takeObservedLocked returns the functions to be called without the lock.
func (w *Watcher) takeObservedLocked() []func() {
	out := w.observed
	w.observed = nil
	return out
}
