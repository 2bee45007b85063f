// Package rawconn provides TCP connections whose reads and writes do not wake Go's system monitor.
//
// A node that serves few events sleeps nearly all the time. Package net announces each
// system call to the runtime. The first announcement after a sleep wakes the monitor, which
// then polls every 20 µs for a millisecond and more, so that no call blocks a processor
// (runtime/proc.go: sysmon, entersyscall). Reads and writes of a non-blocking socket do not
// need this guard: they return at once, and the network poller does the waiting. So this
// package makes them without the announcement.
//
// A [Rester] waits for idle connections, so that none of them needs a goroutine.
//
// Start at [Conn].
package rawconn
