// Package admin operates a Shardwatch cluster: its nodes and their state, where
// the shards lie and where they should, whether the copies are equal, and what the
// voters and the lineage are. cachectl is built on it. Programs that watch and read keys
// need package client alone.
//
// Read [Client] first: [New] makes one from a client of package client, whose
// connections and credentials it uses.
//
//	c, err := client.New(client.Config{Endpoints: []string{"127.0.0.1:7400"}})
//	...
//	status, err := admin.New(c).ClusterStatus(ctx, 0)
//
// A Client may be used from several goroutines and has nothing to close.
package admin
