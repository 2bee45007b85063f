package hostile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

// The modes: how clients connect to a node.
const (
	plain  = "plain" // without TLS, policy and users: every caller may do everything
	secure = "tls"   // TLS with clients' certificates, and a policy
)

// Config configures a run.
type Config struct {
	// Attacks is the names of [Attacks] to run; empty: all.
	Attacks []string
	// Modes is plain, tls or both.
	Modes []string
	// Rounds is the number of rounds of each attack; Calm and Hot are the length of the calm round
	// before each and of the attack.
	Rounds    int
	Calm, Hot time.Duration
	// Control adds a round after each attack, in which another process uses as much CPU time as the
	// attacker did.
	Control bool
	// Watches is the size of the crowd, at least 20.
	Watches int
	// Keys is the number of keys of 1 KiB to list.
	Keys int
	// MaxMemory bounds the growth of the node's memory above rest in bytes, MaxRatio the crowd's
	// delay in multiples of its own 99th percentile.
	MaxMemory int64
	MaxRatio  float64
	// Probe is the minimum timeout of each probe, which may exceed the one in deploy/k8s/base: on a
	// machine with other work, a late answer is no failure.
	Probe time.Duration
	// Apart gives the node half of the cores to itself, as if on its own machine. All clients and
	// etcd share the other half. Otherwise all share all cores.
	Apart bool
	// Nice is the niceness of an attacker's process, 0 to 19, or [Idle]: the attacker must not slow
	// the crowd and etcd down by using their CPU time.
	Nice int
	// Cachenode is the program's path; empty: it is built from this repository.
	Cachenode string
	// Program is a command that calls [Attack], with its arguments. Required.
	Program []string
	// Dir is the directory of data and logs. Required.
	Dir string
	// Say is called with the progress; nil: not called.
	Say func(format string, args ...any)

	under   []string // runs a node on its cores; see moveApart
	shipped nodetest.Shipped
}

// Idle as a niceness is the kernel's SCHED_IDLE: the attacker runs only when its cores are idle,
// and a process that wakes up preempts it at once. A process of niceness 19 keeps its core for the
// rest of its time slice, some milliseconds: as long as the crowd's delays.
const Idle = 20

// Defaults returns the configuration of `make hostile`, without Program and Dir.
func Defaults() Config {
	return Config{
		Modes: []string{plain, secure}, Rounds: 3, Calm: 10 * time.Second, Hot: 10 * time.Second,
		Watches: 500, Keys: 40_000, MaxMemory: 256 << 20, MaxRatio: 2, Control: true, Apart: true, Nice: Idle,
	}
}

// Validate reports all invalid settings at once.
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
