//go:build !linux

package gateway

import "net"

// boundUnsent leaves the bound to the system.
func boundUnsent(net.Conn) {}
