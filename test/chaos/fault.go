package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Fault is a fault of the system.
type Fault struct {
	// Name is the fault's name for --faults, About a sentence on its effect.
	Name, About string
	// Needs lists the prerequisites.
	Needs Needs
	// For is the duration of the fault, from the return of Inject on.
	For time.Duration
	// Stall bounds the delay of 99 of 100 watches of the native API relative to etcd's own watch;
	// 0: no bound.
	Stall time.Duration
	// Inject injects the fault, and returns the function that heals it. An error means that the
	// preparation failed or a required effect did not occur; it ends the run.
	Inject func(ctx context.Context, s *Scene) (heal, error)

	// Flags returns additional flags of the nodes; nil: none.
	Flags func(Config) []string
	// Shards bounds the number of shards, including those that take over from others, as a multiple
	// of the first number; 0: as many.
	Shards int
	// Overtakes: etcd restarts at revision 1 and is written to until it is past its former
	// revision. That takes minutes after a restore has raised etcd's revision, so the fault has a
	// site of its own.
	Overtakes bool
	// NoWrites: etcd takes no writes during the fault, and that time does not count for the write
	// rate.
	NoWrites bool
	// Lists: nodes may have to list from etcd.
	Lists bool
	// Relists: native clients may receive the whole state, since nothing else can serve them.
	Relists bool
	// Missing is the reason why the fault is not implemented: it is in the table, but runs never
	// use it.
	Missing string
}

// heal heals the fault. It returns once all processes run again; the cycle waits until they are
// ready.
type heal func(ctx context.Context) error

// Needs lists the prerequisites of a fault.
type Needs struct {
	// Network: every process has an address of its own; see [network].
	Network bool
	// Members is the required number of etcd's members; 0: any.
	Members int
}

// String returns the prerequisites in words.
func (n Needs) String() string {
	var s []string
	if n.Network {
		s = append(s, "root, ip and iptables")
	}
	if n.Members > 1 {
		s = append(s, fmt.Sprintf("an etcd of %d members", n.Members))
	}
	if n.Members == 1 {
		s = append(s, "an etcd of one member")
	}
	return strings.Join(s, ", ")
}

// unmet returns the reason why this machine does not support the fault, or nil.
func (f Fault) unmet() error {
	if f.Missing != "" {
		return errors.New("not yet: " + f.Missing)
	}
	if f.Needs.Network {
		return netless()
	}
	return nil
}

// Faults returns all faults, in the order of the table.
func Faults() []Fault {
	return slices.Concat(
		kills(), pauses(), cuts(), clientFaults(), losses(), etcdFaults(), compactions(), restores(), rebuilds(), corruptions(),
		clusterFaults(), joins(), mapFaults(), loadFaults(), twoFaults(),
	)
}

// FaultNames returns the names of all faults, in the order of the table.
func FaultNames() []string {
	var names []string
	for _, f := range Faults() {
		names = append(names, f.Name)
	}
	return names
}

// Possible returns the names of the faults that this machine supports, and the reasons against the
// others.
func Possible() (names []string, others map[string]error) {
	others = map[string]error{}
	for _, f := range Faults() {
		if err := f.unmet(); err != nil {
			others[f.Name] = err
			continue
		}
		names = append(names, f.Name)
	}
	return names, others
}

// faultNamed returns the fault of a name, and whether there is one.
func faultNamed(name string) (Fault, bool) {
	all := Faults()
	i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
	if i < 0 {
		return Fault{}, false
	}
	return all[i], true
}

// Scene is the running cluster of a fault.
type Scene struct {
	Cluster *Cluster
	// Seed differs for every cycle, Turn counts the cycles of the same fault.
	Seed uint64
	Turn int
	// Say prints progress for the operator of the run.
	Say func(format string, args ...any)

	etcd    *etcd
	network *network // nil: there is none
	keys    keyspace
	load    *workload
	truth   *truth
	crowd   *crowd
	answers *answers
	apis    []string
	// settle waits for late joiners; judge judges all updates up to a revision that all watchers
	// have reached.
	settle func(ctx context.Context)
	// join runs late joiners of nodes until stop is called, which waits until each has joined at
	// least the given number of times.
	join   func(ctx context.Context, nodes []*Node, times int) (stop func(context.Context) error, err error)
	judge  func(ctx context.Context, rev int64)
	last   *Node         // the last victim
	owned  int           // number of shards it owned
	struck map[*Node]int // how often each node was a victim
}

// Victim returns the node that owns most shards among the nodes that were a victim least often.
func (s *Scene) Victim(ctx context.Context) (*Node, error) {
	owned, err := s.Cluster.Owned(ctx)
	if err != nil {
		return nil, fmt.Errorf("find a victim: %w", err)
	}
	return s.strike(slices.MinFunc(s.Cluster.Nodes, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(s.struck[a], s.struck[b]), cmp.Compare(owned[b.Name], owned[a.Name]))
	}), owned), nil
}

// strike records n as a victim.
func (s *Scene) strike(n *Node, owned map[string]int) *Node {
	if s.struck == nil {
		s.struck = map[*Node]int{}
	}
	s.last, s.owned = n, owned[n.Name]
	s.struck[n]++
	return n
}

// others returns all nodes but n.
func (s *Scene) others(n *Node) []*Node {
	return slices.DeleteFunc(slices.Clone(s.Cluster.Nodes), func(o *Node) bool { return o == n })
}

// WatchesGoOn waits until every watcher has all writes acknowledged so far.
func (s *Scene) WatchesGoOn(ctx context.Context, within time.Duration) error {
	return s.crowd.reach(ctx, s.load.acked.newest(), within)
}

// rng returns random numbers for this cycle.
func (s *Scene) rng() *rand.Rand { return rand.New(rand.NewPCG(s.Seed, 1<<33)) }

// etcdIPs returns the addresses of etcd's members.
func (s *Scene) etcdIPs() (ips []string) {
	for _, m := range s.etcd.members {
		ips = append(ips, m.host.ip)
	}
	return ips
}

// ips returns the addresses of nodes.
func ips(nodes []*Node) (out []string) {
	for _, n := range nodes {
		out = append(out, n.ip())
	}
	return out
}

// together returns a function that heals all, the last one first.
func together(heals ...heal) heal {
	return func(ctx context.Context) error {
		var errs []error
		for _, h := range slices.Backward(heals) {
			if h != nil {
				errs = append(errs, h(ctx))
			}
		}
		return errors.Join(errs...)
	}
}
