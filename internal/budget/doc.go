// Package budget bounds the memory that a node holds for clients.
//
// A node has one [Budget]. Its total is --max-client-bytes, and each [Use] has a fixed share of it, so a client
// that exhausts one use does not starve another. (Open watches have a bound of their own, --max-watch-bytes.)
// Each [Client] may hold a part of each use, so it does not starve other clients either. Memory that grows with
// requests of clients, or with answers that they do not read, is reserved before it is allocated, and released
// when it is freed:
//
//	held, err := b.Reserve(ctx, client, budget.JSON, n) // waits; Take does not
//	if err != nil {
//		return err // a *kv.LimitError, which names the flag, when ctx's deadline has passed
//	}
//	defer held.Release()
//
// The delivery of events reserves nothing: events are shared with the window.
//
// All methods may be called from any goroutine. A nil Budget has no bound.
package budget
