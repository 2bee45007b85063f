// Package tier joins the nodes that serve Kubernetes' API: one of them follows each
// resource at an apiserver, and the others follow that node.
//
// Read [Tier.Source] first. Each resource, in each encoding, has an order of the nodes, by
// a hash of both that all nodes compute alike. The first live node is its owner. A node
// follows those before it, else an apiserver, else those after it: see
// internal/replica. The owner is not agreed upon. While two nodes think that they are
// it, each has a watch at an apiserver, and both bring the same events.
//
// Every node keeps a copy of each resource that clients use at any node, so that the
// windows survive the death of a node. All methods may be called from any goroutine.
package tier
