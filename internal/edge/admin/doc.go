// Package admin serves the admin API, with which operators look at a cluster and change
// it, and the cluster API, by which clients and nodes follow members and the shard map.
//
// Read service.go first. Its Config has a small interface for each part of the node that
// carries out a request; a request is checked here and nowhere else. A Service may be
// used from any goroutine.
package admin
