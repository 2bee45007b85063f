// Package tier joins the nodes that serve Kubernetes' API: one of them follows each
// resource at an apiserver, and the others follow that node.
//
// Read [Tier.Source] first. For each resource, in each encoding, a hash ranks the nodes,
// equally on all nodes. The first live node is the owner. A node follows the nodes before
// it, else an apiserver, else the nodes after it: see internal/replica. The nodes do not
// agree on the owner. While two nodes consider themselves the owner, both watch an
// apiserver, and both get the same events.
//
// Every node keeps a copy of each resource that clients use at any node, so that the
// windows survive the death of a node. All methods may be called from any goroutine.
package tier
