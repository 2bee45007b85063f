// Package fair has queues in which clients take turns: each turn serves the oldest entry of a client. A client
// that queues a thousand entries delays another client by one entry, not by a thousand. A client is an
// identity, or else an address: its connections share its turns.
//
// A [Queue] has no lock: its user guards it. A [Gate] bounds concurrent operations with such a queue.
package fair
