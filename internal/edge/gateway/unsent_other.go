//go:build !linux

package gateway

import "net"

// boundUnsent does nothing: the system's default applies.
func boundUnsent(net.Conn) {}
