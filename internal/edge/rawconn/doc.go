// Package rawconn has TCP connections whose reads and writes leave Go's system monitor asleep.
//
// A node that serves few events is asleep nearly all the time. The runtime announces each
// system call of package net, and the first one after a sleep wakes the monitor, which then
// polls every 20 µs for a millisecond and more, so that no call blocks a processor
// (runtime/proc.go: sysmon, entersyscall). Reads and writes of a socket that does not block
// need no such guard: they return at once, and waiting is the network poller's. So they are
// made without the announcement.
//
// A [Rester] waits for connections that rest, so that none of them needs a goroutine.
//
// Start at [Conn].
package rawconn
