// Package changes has the commands of cachectl that change the shard map, the settings of
// the cluster and its feature level. Read [Commands] first: each of them plans a change,
// asks the operator if need be, and waits until it is done.
package changes
