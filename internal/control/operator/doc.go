// Package operator carries out the shard map changes that operators request, collects
// the nodes' reports of their copies, and recovers lost voters.
//
// Read [Operator] first. All its methods may be called from any goroutine. The decisions
// are in internal/control/mapchange.
package operator
