// Package nodetest runs real cache nodes for tests and benchmarks, each in a
// separate process, in front of an etcd that the caller runs (see etcdtest).
//
// Read [Start] first. [Build] builds the program from this repository. A node
// keeps its ports and its data after [Node.Kill] and [Node.Start], and never
// outlives the process that started it.
package nodetest
