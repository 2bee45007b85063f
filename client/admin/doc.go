// Package admin operates a Shardwatch cluster. It reports the nodes and their state, the
// current and the desired placement of shards, whether the copies are equal, the voters
// and the lineage, and changes them. cachectl is built on it. Programs that only watch
// and read keys need package client alone.
//
// Read [Client] first: [New] creates one from a client of package client, whose
// connections and credentials it uses.
//
//	c, err := client.New(client.Config{Endpoints: []string{"127.0.0.1:7400"}})
//	...
//	status, err := admin.New(c).ClusterStatus(ctx, 0)
//
// A Client is safe for use by several goroutines and need not be closed.
package admin
