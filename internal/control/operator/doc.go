// Package operator carries out the changes of the shard map that operators order, asks
// nodes what they have, and recovers voters that are lost.
//
// Read [Operator] first. All its methods may be called from any goroutine. The decisions
// are in internal/control/mapchange.
package operator
