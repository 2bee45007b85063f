// Package admin serves the admin API, with which operators inspect and change a cluster, and the cluster API,
// with which clients and nodes follow members and the shard map.
//
// Read service.go first. Its Config has a small interface for each part of the node that carries out requests.
// Requests are validated only here. A Service may be used from any goroutine.
package admin
