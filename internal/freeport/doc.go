// Package freeport gives tests and benchmarks ports on loopback that stay theirs: while a
// node or an etcd is down, and before it has started, no other process takes its port.
//
// Each process reserves blocks of ports and takes ports from its own blocks. The
// reservation is a listener on the first port of the block, so it ends with the process.
// All ports lie below those that the system gives to outgoing connections.
package freeport
