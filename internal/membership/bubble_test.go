package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// bubble is a cluster on fake time.
type bubble struct {
	t   *testing.T
	net *Network
}

type running struct {
	*Membership
	address string
	cancel  context.CancelFunc
	ended   chan struct{}
	err     error // after ended
}

func address(i int) string { return fmt.Sprintf("10.0.0.%d:7946", i) }

// start starts node i, named by its number unless change sets a name.
func (b *bubble) start(i int, change func(*Config)) *running {
	b.t.Helper()
	cfg := Defaults()
	cfg.Self = shard.Member{Name: shard.NodeID(fmt.Sprintf("n%02d", i)), UUID: fmt.Sprintf("uuid-%d", i), ClientAddress: ":7400"}
	cfg.Transport = b.net.Transport(address(i))
	cfg.Logger = slog.New(slog.NewTextHandler(b.t.Output(), nil)).With("node", i)
	if i > 1 {
		cfg.Join = []string{address(1)}
	}
	if change != nil {
		change(&cfg)
	}
	return run(b.t, cfg, address(i))
}

func run(t *testing.T, cfg Config, addr string) *running {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Membership: m, address: addr, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = m.Run(ctx)
	}()
	select {
	case <-m.Ready():
	case <-r.ended:
		t.Fatal(r.err)
	}
	return r
}

// kill stops the node as kill -9 would.
func (r *running) kill() {
	r.cancel()
	<-r.ended
}

func stopAll(nodes []*running) {
	for _, n := range nodes {
		n.cancel()
	}
	for _, n := range nodes {
		<-n.ended
	}
}

// states counts the members that n sees, by state.
func (r *running) states() map[shard.State]int {
	out := make(map[shard.State]int)
	for _, m := range r.Members() {
		out[m.State]++
	}
	return out
}

func (r *running) member(name shard.NodeID) shard.Member {
	for _, m := range r.Members() {
		if m.Name == name {
			return m
		}
	}
	return shard.Member{}
}

// together waits until every node sees all nodes alive. A node that missed gossip
// learns of the others from a full exchange with some member, every PushPullInterval.
func together(t *testing.T, nodes []*running) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		apart := slices.IndexFunc(nodes, func(n *running) bool { return n.states()[shard.Alive] != len(nodes) })
		if apart < 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s sees %v, want %d alive", nodes[apart].address, nodes[apart].states(), len(nodes))
		}
	}
}

func inBubble(t *testing.T, f func(t *testing.T, b *bubble)) {
	t.Helper()
	if raceDetector {
		t.Skip("Go's race detector crashes in bubbles with many timers: golang/go#78156")
	}
	synctest.Test(t, func(t *testing.T) {
		f(t, &bubble{t: t, net: NewNetwork(1)})
	})
}

func TestTwentyMembersWithLossStayTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var nodes []*running
		for i := range 20 {
			nodes = append(nodes, b.start(i+1, nil))
		}
		defer func() { stopAll(nodes) }()
		together(t, nodes)
		b.net.SetLoss(0.3)
		const seconds = 120
		lost := make(map[string]int) // consecutive seconds in which a node saw another as dead
		for range seconds {
			time.Sleep(time.Second)
			for _, n := range nodes {
				for _, m := range n.Members() {
					key := n.address + " " + string(m.Name)
					if m.State != shard.Dead {
						delete(lost, key)
						continue
					}
					if lost[key]++; lost[key] > 10 {
						t.Fatalf("%s sees %s dead for more than 10 s", n.address, m.Name)
					}
				}
			}
		}
		b.net.Heal()
		together(t, nodes)
	})
}

func TestPartitionHeals(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var nodes []*running
		var left, right []string
		for i := range 10 {
			n := b.start(i+1, nil)
			nodes = append(nodes, n)
			if i%2 == 0 {
				left = append(left, n.address)
			} else {
				right = append(right, n.address)
			}
		}
		defer func() { stopAll(nodes) }()
		together(t, nodes)
		b.net.Partition(left, right)
		time.Sleep(3 * time.Minute) // longer than gossip keeps dead members
		for _, n := range nodes {
			if s := n.states(); s[shard.Alive] != 5 || s[shard.Dead] != 5 {
				t.Fatalf("%s sees %v in the partition, want 5 alive and 5 dead", n.address, s)
			}
		}
		b.net.Heal()
		together(t, nodes)
	})
}

func TestOneWayCutIsDetected(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		nodes := []*running{b.start(1, nil), b.start(2, nil), b.start(3, nil)}
		defer func() { stopAll(nodes) }()
		time.Sleep(5 * time.Second)
		b.net.CutOneWay(address(2), address(1))
		time.Sleep(30 * time.Second)
		for _, n := range nodes { // 3 probes instead of 1
			if n.states()[shard.Alive] != 3 {
				t.Errorf("%s sees %v, want 3 alive", n.address, n.states())
			}
		}
		b.net.CutOneWay(address(2), address(3))
		b.net.CutOneWay(address(3), address(2))
		b.net.CutOneWay(address(1), address(2))
		time.Sleep(30 * time.Second)
		if s := nodes[0].member("n02").State; s != shard.Dead {
			t.Errorf("n01 sees n02 in state %d, want dead", s)
		}
		if n := nodes[1].member("n01"); n.State != shard.Dead {
			t.Errorf("n02 sees n01 in state %d, want dead", n.State)
		}
	})
}

func TestKilledIsSuspectThenDeadAndForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		nodes := []*running{b.start(1, nil), b.start(2, nil), b.start(3, nil)}
		defer func() { stopAll(nodes) }()
		time.Sleep(5 * time.Second)
		nodes[2].cancel()
		killed := time.Now()
		var got []shard.State
		for len(got) == 0 || got[len(got)-1] != shard.Dead {
			changed := nodes[0].Changes()
			if m := nodes[0].member("n03"); len(got) == 0 || got[len(got)-1] != m.State {
				got = append(got, m.State)
			} else {
				<-changed
			}
		}
		if !slices.Equal(got, []shard.State{shard.Alive, shard.Suspect, shard.Dead}) {
			t.Errorf("states %v, want alive, suspect, dead", got)
		}
		if d := nodes[0].member("n03").Since.Sub(killed); d < 4*time.Second || d > 10*time.Second {
			t.Errorf("dead after %s, want 5 to 8 s", d)
		}
		time.Sleep(15 * time.Minute)
		if m := nodes[0].member("n03"); m.Name != "" {
			t.Errorf("still there after 15 minutes: %+v", m)
		}
	})
}

func TestLeaveIsSeenAtOnceAndNameIsFree(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		nodes := []*running{b.start(1, nil), b.start(2, nil), b.start(3, nil)}
		defer func() { stopAll(nodes) }()
		time.Sleep(5 * time.Second)
		if err := nodes[2].Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for _, n := range nodes {
			if s := n.member("n03").State; s != shard.Left {
				t.Errorf("%s sees state %d, want left", n.address, s)
			}
		}
		nodes[2].kill()
		if err := nodes[2].Leave(t.Context()); err == nil {
			t.Error("Leave succeeds after the node has ended")
		}
		nodes[2] = b.start(4, func(c *Config) { c.Self.Name, c.Self.UUID = "n03", "uuid-3" })
		time.Sleep(2 * time.Second)
		for _, n := range nodes {
			if m := n.member("n03"); m.State != shard.Alive || m.GossipAddress != address(4) || m.ClientAddress != "10.0.0.4:7400" {
				t.Errorf("%s sees %+v, want n03 alive at its new address", n.address, m)
			}
		}
	})
}

// A pod that was killed returns under its name with a new address, while the
// others still see the old one as alive.
func TestRestartWithNewAddress(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		nodes := []*running{b.start(1, nil), b.start(2, nil), b.start(3, nil)}
		defer func() { stopAll(nodes) }()
		time.Sleep(5 * time.Second)
		nodes[2].cancel()
		nodes[2] = b.start(4, func(c *Config) { c.Self.Name, c.Self.UUID = "n03", "uuid-3" })
		begun := time.Now()
		for {
			changed := nodes[0].Changes()
			if m := nodes[0].member("n03"); m.State == shard.Alive && m.GossipAddress == address(4) {
				break
			}
			<-changed
		}
		if d := time.Since(begun); d > 15*time.Second {
			t.Errorf("accepted after %s", d)
		}
		time.Sleep(time.Minute)
		for _, n := range nodes {
			if m := n.member("n03"); m.State != shard.Alive || m.GossipAddress != address(4) {
				t.Errorf("%s sees %+v", n.address, m)
			}
			if err := n.JoinError(); err != nil {
				t.Errorf("%s: %v", n.address, err)
			}
		}
	})
}

func TestNameTakenByLiveNode(t *testing.T) {
	for _, others := range []int{1, 3} {
		t.Run(fmt.Sprintf("of %d", others), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				var nodes []*running
				for i := range others {
					nodes = append(nodes, b.start(i+1, nil))
				}
				defer func() { stopAll(nodes) }()
				time.Sleep(10 * time.Second)
				twin := b.start(9, func(c *Config) { c.Self.Name = "n01" })
				begun := time.Now()
				time.Sleep(20 * time.Second)
				if err := twin.JoinError(); err == nil || !strings.Contains(err.Error(), address(1)) {
					t.Errorf("join error %v does not name the other", err)
				}
				<-twin.ended
				var taken *NameTakenError
				if !errors.As(twin.err, &taken) || taken.Address != address(1) || taken.UUID != "uuid-1" {
					t.Errorf("Run: %v", twin.err)
				}
				if d := time.Since(begun); d < 30*time.Second || d > 40*time.Second {
					t.Errorf("gave up after %s, want 30 s", d)
				}
				time.Sleep(10 * time.Second)
				for _, n := range nodes {
					if m := n.member("n01"); m.State != shard.Alive || m.GossipAddress != address(1) || m.UUID != "uuid-1" {
						t.Errorf("%s sees %+v: the first node was affected", n.address, m)
					}
				}
			})
		})
	}
}

func TestOtherClusterIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		ours := func(c *Config) { c.Self.ClusterID = "ours" }
		nodes := []*running{b.start(1, ours), b.start(2, ours)}
		defer func() { stopAll(nodes) }()
		time.Sleep(5 * time.Second)
		stranger := b.start(3, func(c *Config) { c.Self.ClusterID = "theirs" })
		nodes = append(nodes, stranger)
		time.Sleep(30 * time.Second)
		err := stranger.JoinError()
		for _, want := range []string{"ours", "theirs", "--join", "--data-dir", address(1)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("join error does not contain %q: %v", want, err)
			}
		}
		if n := len(stranger.Members()); n != 1 {
			t.Errorf("the stranger sees %d members", n)
		}
		if m := nodes[0].member("n03"); m.Name != "" {
			t.Errorf("a node of another cluster was admitted: %+v", m)
		}

		// A node without a cluster joins the first cluster that it reaches, and then no other.
		fresh := b.start(4, func(c *Config) { c.Join = []string{address(1), address(3)} })
		nodes = append(nodes, fresh)
		time.Sleep(30 * time.Second)
		if a, z := fresh.member("n01").Name != "", fresh.member("n03").Name != ""; a == z {
			t.Errorf("the new node sees n01: %v, n03: %v; want exactly one", a, z)
		}
		if nodes[0].member("n03").Name != "" || stranger.member("n01").Name != "" {
			t.Error("two clusters merged")
		}
	})
}

func TestMetadataChangesReachAll(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		nodes := []*running{b.start(1, nil), b.start(2, nil), b.start(3, nil)}
		defer func() { stopAll(nodes) }()
		time.Sleep(5 * time.Second)
		for _, n := range nodes {
			n.SetClusterID(uuidA)
		}
		nodes[1].SetDraining(true)
		nodes[0].SetClusterID(strings.Repeat("x", 100)) // refused
		time.Sleep(5 * time.Second)
		for _, n := range nodes {
			for _, m := range n.Members() {
				if m.ClusterID != uuidA || m.Draining != (m.Name == "n02") {
					t.Errorf("%s sees %+v", n.address, m)
				}
			}
		}
	})
}

func TestRestartAtSameAddressShowsNewUUID(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		nodes := []*running{b.start(1, nil), b.start(2, nil)}
		defer func() { stopAll(nodes) }()
		time.Sleep(5 * time.Second)
		nodes[1].kill()
		nodes[1] = b.start(2, func(c *Config) { c.Self.UUID = "wiped" })
		time.Sleep(3 * time.Second)
		if m := nodes[0].member("n02"); m.UUID != "wiped" || m.State != shard.Alive {
			t.Errorf("got %+v", m)
		}
	})
}

func TestDNSNameMeansAllItsAddresses(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var ips atomic.Pointer[[]string] // the service has no addresses at first
		ips.Store(&[]string{})
		lookup := func(_ context.Context, host string) ([]string, error) {
			if host != "nodes.example" {
				return nil, errors.New("no such host")
			}
			return *ips.Load(), nil
		}
		byName := func(c *Config) { c.LookupHost, c.Join = lookup, []string{"nodes.example:7946"} }
		nodes := []*running{b.start(1, byName), b.start(2, byName), b.start(3, byName)}
		defer func() { stopAll(nodes) }()
		time.Sleep(10 * time.Second)
		if err := nodes[0].JoinError(); err == nil || !strings.Contains(err.Error(), "nodes.example") {
			t.Errorf("join error: %v", err)
		}
		ips.Store(&[]string{"10.0.0.1", "10.0.0.99", "10.0.0.2", "::ffff:10.0.0.3"})
		time.Sleep(20 * time.Second)
		for _, n := range nodes {
			if n.states()[shard.Alive] != 3 || n.JoinError() != nil {
				t.Errorf("%s sees %v, %v", n.address, n.states(), n.JoinError())
			}
		}
	})
}

func TestAloneWithoutJoinIsFine(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		n := b.start(1, func(c *Config) { c.Join = []string{address(1)} })
		defer n.kill()
		time.Sleep(time.Minute)
		if err := n.JoinError(); err != nil || len(n.Members()) != 1 {
			t.Errorf("%v, %v", n.Members(), err)
		}
		if s := n.Self(); s.GossipAddress != address(1) || s.ClientAddress != "10.0.0.1:7400" || s.State != shard.Alive {
			t.Errorf("self is %+v", s)
		}
	})
}

// Nodes that start one after the other do not warn about nodes that have not
// started yet. An address that does not answer for some time causes one
// warning.
func TestStartBeforeTheOthersIsNoWarning(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var out bytes.Buffer // read only while nothing writes: all goroutines wait
		warned := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := strings.Count(out.String(), "cannot join"); got != want {
				t.Errorf("after %v: %d warnings, want %d:\n%s", joinPatience, got, want, out.String())
			}
		}
		first := b.start(1, func(c *Config) {
			c.Join = []string{address(2)}
			c.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		defer first.kill()
		time.Sleep(joinPatience - time.Second)
		warned(0)
		time.Sleep(time.Minute)
		warned(1)
		second := b.start(2, nil)
		defer second.kill()
		together(t, []*running{first, second})
		warned(1)
	})
}
