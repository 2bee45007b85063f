// Package beat has all that a node does now and then happen at the same moments. To wake a
// process that sleeps costs more than its work after that, and each timer wakes it twice:
// Go's scheduler waits in whole milliseconds, and then for the rest.
package beat

import "time"

// Every is the time between two beats. They are the same moments in all processes of a machine.
const Every = 200 * time.Millisecond

// Until returns the time until the next moment that is a multiple of every. If every is not a
// multiple of Every, the moment is the beat before: twice a second is 0, 0.4, 1, 1.4 and so on.
func Until(every time.Duration) time.Duration {
	now := time.Now()
	for next := now.Truncate(every); ; next = next.Add(every) {
		if at := next.Truncate(Every); at.After(now) {
			return at.Sub(now)
		}
	}
}
