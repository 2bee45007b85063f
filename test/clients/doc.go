// Package clients tests the clients in other languages than Go, which are in clients/:
// with the conformance cases, and with a cluster of real processes whose serving node is
// killed. The gRPC libraries that they use run gRPC's interop cases with the client port's
// HTTP/2 server. A test is skipped where the packages that a client needs cannot be had.
package clients
