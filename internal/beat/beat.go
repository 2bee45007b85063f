// Package beat aligns the periodic tasks of a node to common moments. Waking a sleeping process costs more than
// the work of a task, and each timer wakes it twice: Go's scheduler waits in whole milliseconds, and then for
// the rest.
package beat

import "time"

// Every is the time between two beats. Beats are the same moments in all processes of a machine.
const Every = 200 * time.Millisecond

// Until returns the time until the next multiple of every. If every is not a multiple of Every, it is rounded
// down to a beat: twice a second is 0, 0.4, 1, 1.4 and so on.
func Until(every time.Duration) time.Duration {
	now := time.Now()
	for next := now.Truncate(every); ; next = next.Add(every) {
		if at := next.Truncate(Every); at.After(now) {
			return at.Sub(now)
		}
	}
}
