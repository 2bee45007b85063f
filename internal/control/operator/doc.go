// Package operator carries out the changes of the shard map that operators order, asks
// nodes for their copies, and recovers lost voters.
//
// Read [Operator] first. All its methods may be called from any goroutine. The decisions
// are in internal/control/mapchange.
package operator
