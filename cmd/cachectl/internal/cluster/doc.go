// Package cluster has the commands of cachectl that show the cluster, one file for each,
// and the commands that restore it: lineage bump and voters recover. Read [Commands]
// first.
package cluster
