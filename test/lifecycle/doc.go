// Package lifecycle lives the life of deploy/k8s' StatefulSet with real processes:
// it is founded, rolled, scaled, evicted, loses machines and is upgraded, in the
// order and with the signals that Kubernetes would use, while clients of both APIs
// watch and [internal/testing/check] judges what they see. No client may have to list again.
//
// Read statefulSet first. A pod is a process in a network namespace of its own:
// each has another address than the one before it under the same name, and the same
// volume. What Kubernetes provides around it is there, too: the headless Service as a
// DNS server, the client Service as a proxy to the pods that are ready.
//
//	clients ─▶ service ─▶ pod shardwatch-0 ─┐
//	                      pod shardwatch-1 ─┼─▶ etcd
//	               dns ◀─ pod shardwatch-2 ─┘
//
// It needs root and ip, and skips without. `make lifecycle` runs the whole of it;
// `go test` a short one.
package lifecycle
