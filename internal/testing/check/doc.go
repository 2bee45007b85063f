// Package check holds the promises of a watch, one checker each, and compares
// the observations of watchers and readers with the history of etcd.
//
// Read [History] first: it has every batch by revision and serves as the reference. The
// observations of one watcher are a sequence of [Op]. Each promise is a function of the two:
// [Ordered], [Unique], [Reliable], [Atomic], [Resumable], [Bookmarkable], [PreviousValues],
// [Filtered], [ExactStates] and [ExactDeltas], named as etcd's robustness tests name them where
// they have the same promise. [EqualState] and [Read.Check] do the same for states and reads. All
// return [Violation] values, each a text with the watcher, the revision, the key, the expected and
// the received value.
//
// A long run holds too much to keep: a [Checker] is fed one Op at a time,
// judges it by every promise as soon as the history reaches it, and forgets
// it. Values are compared by their hash.
//
// A History may be appended to and read by many goroutines; everything else
// belongs to one goroutine at a time. Nothing here has a clock, starts a
// goroutine or writes a log.
package check
