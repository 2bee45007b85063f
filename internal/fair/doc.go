// Package fair is a queue in which clients take turns: each gets the one of its entries
// that has waited longest. A client that queues a thousand entries delays another one by
// one entry, and not by a thousand. A client is an identity, or else an address:
// connections of one client share its turn.
//
// A [Queue] is a value without a lock: its user guards it. A [Gate] is a bound of how many
// do something at a time, with such a queue before it.
package fair
