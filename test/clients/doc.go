// Package clients tests the clients in other languages than Go, which lie in clients/:
// with the conformance cases, and with a cluster of real processes whose serving node is
// killed. A test is skipped where the packages that a client needs cannot be had.
package clients
