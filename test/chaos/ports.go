package chaos

import (
	"fmt"
	"net"
)

// freePorts returns n addresses on loopback whose ports are free for TCP and
// UDP. Somebody else may take one before we do; nodes then fail to start and
// say so.
func freePorts(n int) ([]string, error) {
	var out []string
	var held []interface{ Close() error }
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	for len(out) < n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, l)
		u, err := net.ListenPacket("udp", l.Addr().String())
		if err != nil {
			continue // taken for UDP: the next one
		}
		held = append(held, u)
		out = append(out, l.Addr().String())
	}
	return out, nil
}
