// Package nodetest gives tests and benchmarks real cache nodes, each in a
// process of its own, before an etcd that the caller runs (see etcdtest).
//
// Read [Start] first. [Build] makes the program from this repository. A node
// keeps its ports and its data over [Node.Kill] and [Node.Start], and never
// outlives the process that started it.
package nodetest
