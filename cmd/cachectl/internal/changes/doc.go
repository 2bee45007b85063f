// Package changes has the commands of cachectl that change the shard map, the settings of
// the cluster and its feature level. Read [Commands] first: each command plans a change,
// asks the operator for confirmation if necessary, and waits until the change is complete.
package changes
