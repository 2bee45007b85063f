// Package freeport reserves loopback ports for tests and benchmarks: while a node or an etcd
// is down, and before it has started, no other process takes its port.
//
// Each process reserves blocks of ports and takes ports from its own blocks. The
// reservation is a listener on the first port of the block, so it ends with the process.
// All ports are below the ports that the system assigns to outgoing connections.
package freeport
