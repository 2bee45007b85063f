// Package peers keeps the connections to the peer ports of the other nodes.
//
// Read [Set.Conn] first.
package peers
