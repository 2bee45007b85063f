package nodetest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

// FreePorts returns n addresses on loopback whose ports are free for TCP and
// UDP. They lie below those that the system gives to outgoing connections:
// the port of a node that is dead for a while must still be free when it comes
// back. The tests of internal/node, which run at the same time, take theirs from 24000 on.
func FreePorts(n int) ([]string, error) {
	const lowest, tries = 10_000, 10_000
	highest := min(firstEphemeral(), 24_000)
	var out []string
	taken := map[int]bool{}
	for range tries {
		if len(out) == n {
			return out, nil
		}
		port := lowest + rand.IntN(highest-lowest)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if !taken[port] && free(addr) {
			out = append(out, addr)
		}
		taken[port] = true
	}
	return nil, fmt.Errorf("found %d free ports between %d and %d, need %d", len(out), lowest, highest, n)
}

// firstEphemeral returns the first port that the system may give to an
// outgoing connection.
func firstEphemeral() int {
	const usual = 32_768
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return usual
	}
	var first, last int
	if _, err := fmt.Sscan(string(b), &first, &last); err != nil || first < 20_000 {
		return usual
	}
	return first
}

func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	_ = u.Close()
	return true
}
