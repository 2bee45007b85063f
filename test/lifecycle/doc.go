// Package lifecycle runs the life cycle of deploy/k8s' StatefulSet with real processes: it is
// bootstrapped, rolled, scaled, evicted, loses machines and is upgraded, in the order and with the
// signals of Kubernetes, while clients of both APIs watch and [internal/testing/check] judges their
// updates. No client may have to list again.
//
// Read statefulSet first. A pod is a process in a separate network namespace: it has a different
// address from its predecessor of the same name, and the same volume. The environment of Kubernetes
// exists, too: the headless Service as a DNS server, the client Service as a proxy to the ready
// pods.
//
//	clients ─▶ service ─▶ pod shardwatch-0 ─┐
//	                      pod shardwatch-1 ─┼─▶ etcd
//	               dns ◀─ pod shardwatch-2 ─┘
//
// It needs root and ip, and otherwise skips. `make lifecycle` runs the complete test, `go test` a
// short one.
package lifecycle
