package membership

import (
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socketNode starts a node on loopback, quicker than the defaults.
func socketNode(t *testing.T, name string, change func(*Config)) *running {
	t.Helper()
	cfg := Defaults()
	cfg.Self = shard.Member{Name: shard.NodeID(name), UUID: "uuid-" + name, ClientAddress: "127.0.0.1:7400"}
	cfg.BindAddr = "127.0.0.1:0"
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil)).With("node", name)
	cfg.ProbeInterval, cfg.ProbeTimeout = 300*time.Millisecond, 200*time.Millisecond
	cfg.GossipInterval, cfg.ViewInterval = 50*time.Millisecond, 50*time.Millisecond
	cfg.PushPullInterval = time.Second
	cfg.RetryInterval, cfg.RejoinInterval = 100*time.Millisecond, time.Second
	cfg.ReclaimTime, cfg.ConflictTimeout = 200*time.Millisecond, 3*time.Second
	if change != nil {
		change(&cfg)
	}
	r := run(t, cfg, "")
	r.address = r.Self().GossipAddress
	t.Cleanup(r.kill)
	return r
}

func joining(nodes ...*running) func(*Config) {
	return func(c *Config) {
		for _, n := range nodes {
			c.Join = append(c.Join, n.address)
		}
	}
}

// Pods of an IPv6 cluster announce their address, and listen on all.
func TestSocketsIPv6(t *testing.T) {
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6: %v", err)
	}
	probe.Close()
	everywhere := func(c *Config) { c.BindAddr, c.AdvertiseAddr = ":0", "::1" }
	a := socketNode(t, "a", everywhere)
	b := socketNode(t, "b", func(c *Config) { everywhere(c); joining(a)(c) })
	for _, n := range []*running{a, b} {
		testkit.Eventually(t, "two alive", func() bool { return n.states()[shard.Alive] == 2 })
	}
}

func TestSocketsThreeNodes(t *testing.T) {
	a := socketNode(t, "a", nil)
	b := socketNode(t, "b", joining(a))
	c := socketNode(t, "c", joining(a, b))
	all := []*running{a, b, c}
	for _, n := range all {
		testkit.Eventually(t, "three alive", func() bool { return n.states()[shard.Alive] == 3 })
	}
	c.SetDraining(true)
	c.SetClusterID(uuidA)
	for _, n := range all {
		testkit.Eventually(t, "c draining", func() bool { m := n.member("c"); return m.Draining && m.ClusterID == uuidA })
	}

	c.kill()
	testkit.Eventually(t, "c dead", func() bool { return a.member("c").State == shard.Dead })

	c = socketNode(t, "c", joining(a, b)) // another port, the same UUID
	for _, n := range []*running{a, b, c} {
		testkit.Eventually(t, "c back", func() bool {
			m := n.member("c")
			return m.State == shard.Alive && m.GossipAddress == c.address && !m.Draining
		})
	}

	if err := b.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*running{a, b, c} {
		testkit.Eventually(t, "b left", func() bool { return n.member("b").State == shard.Left })
	}
}

func TestSocketsNameTaken(t *testing.T) {
	a := socketNode(t, "a", nil)
	b := socketNode(t, "b", joining(a))
	testkit.Eventually(t, "joined", func() bool { return b.states()[shard.Alive] == 2 })
	twin := socketNode(t, "a", func(c *Config) { joining(a, b)(c); c.Self.UUID = "another" })
	testkit.Eventually(t, "the second node of that name ends", func() bool {
		select {
		case <-twin.ended:
			return true
		default:
			return false
		}
	})
	if twin.err == nil || !strings.Contains(twin.err.Error(), a.address) || !strings.Contains(twin.err.Error(), "--name") {
		t.Errorf("Run: %v", twin.err)
	}
	testkit.Eventually(t, "b sees the first node", func() bool { m := b.member("a"); return m.State == shard.Alive && m.UUID == "uuid-a" })
}

func TestSocketsKeys(t *testing.T) {
	key := func(s string) [][]byte { return [][]byte{[]byte(strings.Repeat(s, 32))} }
	with := func(keys [][]byte, nodes ...*running) func(*Config) {
		return func(c *Config) { joining(nodes...)(c); c.SecretKeys = keys }
	}
	a := socketNode(t, "a", with(key("k")))
	same := socketNode(t, "same", with(append(key("o"), key("k")...), a)) // in the middle of a rotation
	other := socketNode(t, "other", with(key("x"), a))
	none := socketNode(t, "none", with(nil, a))
	for _, n := range []*running{other, none} {
		testkit.Eventually(t, "a clear error", func() bool {
			err := n.JoinError()
			return err != nil && strings.Contains(err.Error(), "gossip keys differ") && strings.Contains(err.Error(), a.address)
		})
	}
	// same sends with a key that a does not have: it must report an error, too.
	testkit.Eventually(t, "an unknown first key is an error", func() bool { return same.JoinError() != nil })
	both := socketNode(t, "both", with(append(key("k"), key("o")...), a))
	testkit.Eventually(t, "both joins", func() bool { return both.states()[shard.Alive] == 2 && a.states()[shard.Alive] == 2 })
}

// A key is replaced in three steps, node by node, without interrupting gossip.
func TestSocketsRotateKeys(t *testing.T) {
	old, young := []byte(strings.Repeat("o", 32)), []byte(strings.Repeat("y", 16))
	with := func(nodes ...*running) func(*Config) {
		return func(c *Config) { joining(nodes...)(c); c.SecretKeys = [][]byte{old} }
	}
	a := socketNode(t, "a", with())
	b := socketNode(t, "b", with(a))
	c := socketNode(t, "c", with(a, b))
	all := []*running{a, b, c}
	for _, n := range all {
		testkit.Eventually(t, "three alive", func() bool { return n.states()[shard.Alive] == 3 })
	}
	draining := false
	for _, step := range [][][]byte{{old, young}, {young, old}, {young}} {
		for _, n := range all {
			if err := n.SetKeys(step); err != nil {
				t.Fatal(err)
			}
			draining = !draining
			b.SetDraining(draining)
			for _, other := range all {
				testkit.Eventually(t, "news of b", func() bool { return other.member("b").Draining == draining })
				if other.states()[shard.Alive] != 3 {
					t.Errorf("after %q: %v", step, other.states())
				}
			}
		}
	}
	late := socketNode(t, "late", with(a))
	testkit.Eventually(t, "the old key is refused", func() bool { return late.JoinError() != nil })
	for _, wrong := range [][][]byte{nil, {young, []byte("short")}, {young, young}} {
		if err := a.SetKeys(wrong); err == nil {
			t.Errorf("invalid keys were accepted: %q", wrong)
		}
	}
	plain := socketNode(t, "plain", nil)
	if err := plain.SetKeys([][]byte{young}); err == nil {
		t.Error("SetKeys turns encryption on in a running node")
	}
}

func TestSocketsPortTaken(t *testing.T) {
	a := socketNode(t, "a", nil)
	cfg := Defaults()
	cfg.Self = shard.Member{Name: "b", UUID: uuidB}
	cfg.BindAddr = a.address
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), a.address) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("Run: %v", err)
	}
	if err := m.Run(t.Context()); err == nil {
		t.Error("Run twice")
	}
}

func TestSocketsAdvertiseName(t *testing.T) {
	n := socketNode(t, "a", func(c *Config) { c.AdvertiseAddr = "localhost" })
	if !strings.HasPrefix(n.address, "127.0.0.1:") && !strings.HasPrefix(n.address, "[::1]:") {
		t.Errorf("advertised %s", n.address)
	}
}
