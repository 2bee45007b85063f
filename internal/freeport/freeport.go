package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
)

const (
	lowest = 10_000
	// size is the number of ports of a block, the first of which reserves it.
	size = 100
)

// owned are the ports that this process has reserved.
var owned struct {
	sync.Mutex
	blocks []net.Listener // guarded by Mutex; they reserve the blocks until the process ends
	next   int            // guarded by Mutex; the next port of the last block
	end    int            // guarded by Mutex; the first port after the last block
}

// Take returns n addresses, each once per process, whose ports are free for TCP and UDP.
func Take(n int) ([]string, error) {
	owned.Lock()
	defer owned.Unlock()
	var out []string
	for len(out) < n {
		if owned.next == owned.end {
			if err := reserveLocked(); err != nil {
				return nil, err
			}
		}
		if address := loopback(owned.next); free(address) {
			out = append(out, address)
		}
		owned.next++
	}
	return out, nil
}

// reserveLocked reserves another block.
func reserveLocked() error {
	blocks := (firstEphemeral() - lowest) / size
	for _, i := range rand.Perm(blocks) {
		first := lowest + i*size
		l, err := net.Listen("tcp", loopback(first))
		if err != nil {
			continue
		}
		owned.blocks, owned.next, owned.end = append(owned.blocks, l), first+1, first+size
		return nil
	}
	return fmt.Errorf("all %d blocks of ports are reserved, %d of them by this process", blocks, len(owned.blocks))
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
	if _, err := fmt.Sscan(string(b), &first, &last); err != nil || first < lowest+size {
		return usual
	}
	return min(first, usual)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// free reports whether no process listens at the address: processes without this package may.
// The check excludes the start of child processes: a child inherits the listeners until it
// executes its program, and the port would seem taken to its next user.
func free(address string) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	u, err := net.ListenPacket("udp", address)
	if err != nil {
		_ = l.Close()
		return false
	}
	return errors.Join(l.Close(), u.Close()) == nil
}
