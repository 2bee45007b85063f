package hostile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

// The ways in which a client reaches a node.
const (
	plain  = "plain" // without TLS, policy and users: every caller may do everything
	secure = "tls"   // TLS with clients' certificates, and a policy
)

// Config configures a run.
type Config struct {
	// Attacks are names of [Attacks]; empty: all.
	Attacks []string
	// Modes are plain, tls or both.
	Modes []string
	// Rounds is the number of runs of each attack; Calm and Hot are how long the crowd is
	// measured before each and during each.
	Rounds    int
	Calm, Hot time.Duration
	// Control adds a round after each attacked one, in which another process uses as much CPU time
	// as the attacker did.
	Control bool
	// Watches is the size of the crowd, at least 20.
	Watches int
	// Keys is the number of keys of 1 KiB to list.
	Keys int
	// MaxMemory is how many bytes the node's memory may grow above rest, MaxRatio how
	// many times its own 99th percentile the crowd may wait.
	MaxMemory int64
	MaxRatio  float64
	// Probe is how long each probe may take at least, beside the timeouts of
	// deploy/k8s/base: on a machine with other work, a late answer is no failure.
	Probe time.Duration
	// Apart gives the node half of the cores for itself, as its machine. The other half is
	// that of all clients and of etcd. Otherwise all share all cores.
	Apart bool
	// Nice is the niceness of an attacker's process, 0 to 19, or [Idle]: the crowd and etcd are
	// not to be slower because the attacker's CPU time comes from theirs.
	Nice int
	// Cachenode is the program's path; empty: built from this repository.
	Cachenode string
	// Program is a command that calls [Attack], with its arguments. Required.
	Program []string
	// Dir is the directory of data and logs. Required.
	Dir string
	// Say is called with the progress; nil: it is not reported.
	Say func(format string, args ...any)

	under   []string // runs a node on its cores; see moveApart
	shipped nodetest.Shipped
}

// Idle as a niceness is the kernel's SCHED_IDLE: the attacker runs while no other process of
// its cores does, and one that wakes up preempts it at once. A process of niceness 19 keeps
// its core for the rest of its time slice, some milliseconds: as much as the crowd's delays.
const Idle = 20

// Defaults returns the configuration of `make hostile`, without Program and Dir.
func Defaults() Config {
	return Config{
		Modes: []string{plain, secure}, Rounds: 3, Calm: 10 * time.Second, Hot: 10 * time.Second,
		Watches: 500, Keys: 40_000, MaxMemory: 256 << 20, MaxRatio: 2, Control: true, Apart: true, Nice: Idle,
	}
}

// Validate names everything that is wrong.
func (c *Config) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, name := range c.Attacks {
		if !slices.ContainsFunc(Attacks(), func(a Attack) bool { return a.Name == name }) {
			wrong("--only: there is no attack %q; see --help", name)
		}
	}
	if len(c.Modes) == 0 {
		wrong("--modes: none is named")
	}
	for _, m := range c.Modes {
		if m != plain && m != secure {
			wrong("--modes: there is no %q: %s", m, strings.Join([]string{plain, secure}, ", "))
		}
	}
	if c.Rounds < 1 {
		wrong("--rounds: must be at least 1")
	}
	if c.Calm <= 0 || c.Hot <= 0 {
		wrong("--calm and --hot must be positive")
	}
	if c.Nice < 0 || c.Nice > Idle {
		wrong("--nice: must be 0 to %d", Idle)
	}
	if c.Watches < 2*clients {
		wrong("--watches: must be at least %d", 2*clients)
	}
	if c.Keys < perTxn {
		wrong("--keys: must be at least %d", perTxn)
	}
	return errors.Join(errs...)
}
