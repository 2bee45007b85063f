package config_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

func valid(t *testing.T) config.Config {
	t.Helper()
	c := config.Defaults()
	c.Name = "a"
	c.DataDir = filepath.Join(t.TempDir(), "not-yet-there")
	c.BootstrapExpect = 1
	_ = c.Insecure.Set("all")
	return c
}

// testFile returns a file that can be opened.
func testFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func gossipKeys(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestValidateNamesEveryMistakeAtOnce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   []string
	}{
		"nothing set": {
			func(c *config.Config) { *c = config.Defaults(); _ = c.Insecure.Set("all") },
			[]string{"--name is empty", "--data-dir is required", "nothing to join and nothing to found: give --join"},
		},
		"names": {func(c *config.Config) { c.Name = "a b" }, []string{`--name "a b": use letters`}},
		"a long name": {
			func(c *config.Config) { c.Name = strings.Repeat("x", 64) },
			[]string{"--name has 64 bytes: at most 63"},
		},
		"data dir is a file": {func(c *config.Config) { c.DataDir = file }, []string{"--data-dir " + file + " is not a directory"}},
		"no weight":          {func(c *config.Config) { c.Weight = 0 }, []string{"--weight 0: use a number from 1 to 100; to take all shards from a node, run cachectl drain"}},
		"a weight below 0":   {func(c *config.Config) { c.Weight = -1 }, []string{"--weight -1: use a number from 1 to 100"}},
		"too much weight":    {func(c *config.Config) { c.Weight = 101 }, []string{"--weight 101: use a number from 1 to 100"}},
		"an even number of voters": {
			func(c *config.Config) { c.BootstrapExpect = 2 },
			[]string{"--bootstrap-expect 2: use 1, 3 or 5"},
		},
		"ports": {
			func(c *config.Config) {
				c.Listen.Peer = ":7400"
				c.Listen.Raft = "127.0.0.1:7480"
				c.Listen.Gossip = "7946"
				c.Listen.Client = "127.0.0.1:7400"
			},
			[]string{
				"--listen and --peer-listen both use port 7400",
				"--raft-listen and --http-listen both use port 7480",
				`--gossip-listen "7946": want host:port`,
			},
		},
		"port numbers": {
			func(c *config.Config) { c.Listen.Client, c.Listen.HTTP = ":0", ":70000" },
			[]string{`--listen ":0": the port must be`, `--http-listen ":70000": the port must be`},
		},
		"advertise any": {func(c *config.Config) { c.Advertise = "0.0.0.0" }, []string{"--advertise 0.0.0.0: others cannot dial"}},
		"advertise to clients": {
			func(c *config.Config) { c.AdvertiseClients = "node.example:7400" },
			[]string{`--advertise-clients "node.example:7400": want a host alone`},
		},
		"advertise with a port": {
			func(c *config.Config) { c.Advertise = "host:7400" },
			[]string{`--advertise "host:7400": want a host alone`},
		},
		"join": {
			func(c *config.Config) { c.Join = []string{"http://a", "a:b", ""} },
			[]string{`--join "http://a"`, `--join "a:b"`, `--join ""`},
		},
		"etcd": {
			func(c *config.Config) {
				c.Etcd.Endpoints = []string{"http://a:1", "https://b:2", "ftp://c", "d", "http://u:secret@e:1", "http://f:1/x"}
				c.Etcd.TLS.CA = file
				c.Etcd.User = "root"
			},
			[]string{
				`--etcd "ftp://c": want a URL`, `--etcd "d": want a URL`, "--etcd http://u:xxxxx@e:1: no user",
				`--etcd "http://f:1/x": want nothing after the port`, "--etcd mixes http:// and https://",
				"--etcd has http:// endpoints, but --etcd-ca",
				"--etcd-user is given but --etcd-password-file is not",
			},
		},
		"no etcd": {func(c *config.Config) { c.Etcd.Endpoints = nil }, []string{"--etcd is empty"}},
		"etcd files": {
			func(c *config.Config) {
				c.Etcd.Endpoints = []string{"a:1"}
				c.Etcd.TLS.Cert = file
				c.Etcd.PasswordFile = dir + "/gone"
			},
			[]string{
				"--etcd-cert is given but --etcd-key is not", "--etcd-password-file is given but --etcd-user is not",
				"--etcd-password-file: " + dir + "/gone: no such file",
			},
		},
		"prefixes": {
			func(c *config.Config) { c.Prefixes = []string{"/a/", "/b/", "/a/b/", "/b/", ""} },
			[]string{`--prefix "/a/" and --prefix "/a/b/" overlap`, `--prefix "/b/" is given twice`, `--prefix "" means all keys`},
		},
		"too many prefixes": {
			func(c *config.Config) { c.Prefixes = numbered(257) },
			[]string{"257 --prefix: use 256 at most"},
		},
		"fewer shards than prefixes": {
			func(c *config.Config) { c.Prefixes, c.Shards = []string{"/a/", "/b/", "/c/"}, 2 },
			[]string{"--shards (2) is below the number of --prefix (3)"},
		},
		"numbers": {
			func(c *config.Config) {
				c.Shards, c.Replicas = 5000, 0
				c.WindowBytes, c.WindowTime, c.MaxStaleness, c.DrainTimeout = 10, time.Millisecond, -1, 0
				c.WatchProgressNotifyInterval = time.Millisecond
				c.Limits = config.Limits{ConnectionsPerAddress: -1, ConnectionAge: time.Second, AddressRate: 1, AddressHandshakes: -1, WatchesPerStream: 0, StreamsPerConnection: -1, MessageBytes: config.MiB, Resyncs: 0, ResyncRate: 1}
				c.Elastic = config.Elastic{SplitAfter: time.Second, SplitBytes: 1, SplitEvents: -1, SplitWatches: -1, ReplicaWatches: -1, MaxExtraReplicas: -1, MaxMoves: -1, MaxNodeMoves: -1, ReplaceVoterAfter: -1}
				c.LogFormat, c.StatusPage, c.OTLPEndpoint = "xml", "yes", "collector:4317"
				c.ClientServer = "nginx"
				c.VerifyInterval, c.VerifyEtcdInterval = time.Millisecond, time.Second
			},
			[]string{
				"--shards 5000: use 1 to 4096", "--replicas 0", "--window-bytes 10B: at least 1MiB", "--window-time 1ms: at least 1s",
				"--split-bytes 1B: at least 1MiB", "--max-shards 0: use 1 to 100000", "--split-after 1s: at least 10s", "--merge-after (0s) must not be shorter than --split-after (1s)", "--split-events -1", "--split-watches -1", "--replica-watches -1",
				"--max-extra-replicas -1", "--max-moves -1", "--max-node-moves -1", "--replace-voter-after -1ns",
				"--max-staleness -1ns", "--watch-progress-notify-interval 1ms: at least 100ms", "--drain-timeout 0s", "--max-connections 0: at least 1", "--max-connections-per-address -1: at least 1", "--max-connection-age 1s: at least 1m0s", "--address-rate 1B: at least 1MiB", "--address-handshakes -1: at least 1", "--max-watches-per-stream 0", "--max-streams-per-connection -1",
				"--max-message-bytes 1MiB: use 1536KiB", "--max-client-bytes 0B: at least 64MiB", "--max-watch-bytes 0B: at least 1MiB", "--max-resyncs 0: at least 1", "--resync-rate 1B: at least 1MiB", `--log-format "xml"`, `--otlp-endpoint "collector:4317": want http://host:4317`, "--verify-interval 1ms: at least 1s", "--verify-etcd-interval 1s: at least 1m0s", `--status-page "yes": use on, with-keys, off`,
				`--client-server "nginx": use own, grpc-go`,
			},
		},
		"half TLS": {
			func(c *config.Config) { c.ClientTLS.CA, c.PeerTLS.Cert, c.PeerTLS.Key = file, file, file },
			[]string{"--tls-client-ca is given without --tls-cert", "--peer-tls-cert, --peer-tls-key and --peer-tls-ca go together"},
		},
		"names without TLS": {
			func(c *config.Config) { c.PeerSANs = []string{"a.*.b", "https://", "peers.internal", "spiffe://a/*"} },
			[]string{
				"--peer-tls-allowed-san is given without --peer-tls-cert",
				`--peer-tls-allowed-san "a.*.b": want a DNS name`, `--peer-tls-allowed-san "https://": want a URI`,
			},
		},
		"half TLS of the HTTP port": {
			func(c *config.Config) { c.HTTPTLS.CA = file },
			[]string{"--http-tls-client-ca is given without --http-tls-cert"},
		},
		"TLS files": {
			func(c *config.Config) { c.ClientTLS.Cert, c.PeerTLS.CA = dir+"/c", dir+"/d" },
			[]string{"--tls-cert is given but --tls-key is not", "--tls-cert: " + dir + "/c: no such file", "--peer-tls-ca: " + dir + "/d: no such file", "--peer-tls-cert, --peer-tls-key and --peer-tls-ca go together"},
		},
		"gossip key": {func(c *config.Config) { c.GossipKeyFile = file }, []string{"--gossip-key-file: " + file + ":1 does not hold 16, 24 or 32 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := valid(t)
			c.change(&cfg)
			err := cfg.Validate()
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in:\n%v", want, err)
				}
			}
			if got := strings.Count(err.Error(), "\n") + 1; got != len(c.want) {
				t.Errorf("%d mistakes, want %d:\n%v", got, len(c.want), err)
			}
		})
	}
}

func numbered(n int) (prefixes []string) {
	for i := range n {
		prefixes = append(prefixes, fmt.Sprintf("/%03d/", i))
	}
	return prefixes
}

func TestValidateAccepts(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"the defaults":           func(*config.Config) {},
		"a joining node":         func(c *config.Config) { c.BootstrapExpect, c.Join = 0, []string{"a", "b:1", "::1", "[::1]:7946"} },
		"one port, two hosts":    func(c *config.Config) { c.Listen.Client, c.Listen.Peer = "127.0.0.1:7400", "127.0.0.2:7400" },
		"bare etcd endpoints":    func(c *config.Config) { c.Etcd.Endpoints = []string{"a:1", "[::1]:2379"} },
		"many prefixes":          func(c *config.Config) { c.Prefixes = numbered(256) },
		"prefixes side by side":  func(c *config.Config) { c.Prefixes = []string{"/a/", "/b/", "/ab/"} },
		"an advertised IPv6":     func(c *config.Config) { c.Advertise = "fd00::1" },
		"etcd over https":        func(c *config.Config) { c.Etcd.Endpoints = []string{"https://a:1/"} },
		"a data dir that exists": func(c *config.Config) { c.DataDir = "." },
	} {
		t.Run(name, func(t *testing.T) {
			c := valid(t)
			change(&c)
			if err := c.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	c := valid(t)
	c.Replicas, c.BootstrapExpect = 5, 3
	c.Etcd.Endpoints = []string{"http://127.0.0.1:2379", "http://etcd.example:2379"}
	got := strings.Join(c.Warnings(), "\n")
	for _, want := range []string{
		"--replicas (5) is above --bootstrap-expect (3)", "this node waits until the others join it",
		"--listen :7400 is open (--insecure)", "--peer-listen :7401 is open", "--raft-listen :7402 is open", "--gossip-listen :7946 is open",
		"--http-listen :7480 is open", "--policy is not given: while etcd's authentication is off, every client that --listen admits may read and write all keys and administer the nodes", "--etcd http://etcd.example:2379: keys, values",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	quiet := config.DevDefaults().Node(1, "d")
	if w := quiet.Warnings(); len(w) != 0 {
		t.Errorf("a node on loopback warns: %v", w)
	}
}

func TestGossipKeys(t *testing.T) {
	c := valid(t)
	c.GossipKeyFile = filepath.Join(t.TempDir(), "keys")
	first, second := "0123456789abcdef", "fedcba9876543210"
	encode := func(key string) string { return base64.StdEncoding.EncodeToString([]byte(key)) + "\n" }
	for text, want := range map[string][]string{
		encode(first): {first},
		"# new\n" + encode(second) + "\n# old\n" + encode(first): {second, first},
	} {
		if err := os.WriteFile(c.GossipKeyFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := c.GossipKeys()
		if err != nil || !slices.EqualFunc(got, want, func(k []byte, s string) bool { return string(k) == s }) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]string{
		"":                               "holds 0 keys: want 1 to 8",
		strings.Repeat(encode(first), 9): "holds 9 keys",
		encode(first) + "\nc2hvcnQ=\n":   ":3 does not hold 16, 24 or 32 bytes",
	} {
		if err := os.WriteFile(c.GossipKeyFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := c.GossipKeys()
		if err == nil || !strings.Contains(err.Error(), c.GossipKeyFile) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c2hvcnQ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAdvertised(t *testing.T) {
	ip := netip.MustParseAddr
	private, public, six, home, link := ip("10.1.2.3"), ip("192.0.2.7"), ip("fd00::1"), ip("127.0.0.1"), ip("169.254.1.1")
	for name, c := range map[string]struct {
		advertise, listen string
		local             []netip.Addr
		want              string
	}{
		"a private address first":   {"", ":7400", []netip.Addr{home, link, six, public, private}, "10.1.2.3:7400"},
		"a public one before IPv6":  {"", "0.0.0.0:7400", []netip.Addr{six, public}, "192.0.2.7:7400"},
		"IPv6":                      {"", "[::]:7400", []netip.Addr{home, six}, "[fd00::1]:7400"},
		"the listener's address":    {"", "127.0.0.1:7400", []netip.Addr{private}, "127.0.0.1:7400"},
		"the operator's setting":    {"node.example", "127.0.0.1:7400", nil, "node.example:7400"},
		"nothing that others reach": {"", ":7400", []netip.Addr{home, link}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := valid(t)
			cfg.Advertise, cfg.Listen.Client = c.advertise, c.listen
			for _, l := range []*string{&cfg.Listen.Peer, &cfg.Listen.Raft, &cfg.Listen.Gossip, &cfg.Listen.HTTP} {
				*l = "127.0.0.1" + *l
			}
			got, err := cfg.Advertised(func() ([]netip.Addr, error) { return c.local, nil })
			if got.Client != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v; want %q", got.Client, err, c.want)
			}
			if err == nil && c.advertise == "" && got.Gossip != "127.0.0.1:7946" {
				t.Errorf("gossip %q", got.Gossip)
			}
		})
	}
}

func TestClientsGetTheAdvertisedName(t *testing.T) {
	cfg := valid(t)
	cfg.Advertise, cfg.AdvertiseClients = "10.1.2.3", "node-0.example"
	forbidden := func() ([]netip.Addr, error) { return nil, syscall.EAFNOSUPPORT } // without AF_NETLINK
	got, err := cfg.Advertised(forbidden)
	if err != nil || got.Client != "node-0.example:7400" || got.Peer != "10.1.2.3:7401" || got.Gossip != "10.1.2.3:7946" {
		t.Errorf("%+v, %v", got, err)
	}
	cfg.Advertise = ""
	if _, err := cfg.Advertised(forbidden); !errors.Is(err, syscall.EAFNOSUPPORT) || !strings.Contains(err.Error(), "--advertise") {
		t.Errorf("without --advertise: %v", err)
	}
}

func TestJoinWithoutAPortUsesTheOwnPort(t *testing.T) {
	cfg := valid(t)
	cfg.Listen.Gossip, cfg.Join = ":7999", []string{"nodes.internal", "a:7946", "fd00::1", "[fd00::2]:1"}
	want := []string{"nodes.internal:7999", "a:7946", "[fd00::1]:7999", "[fd00::2]:1"}
	if got := cfg.Joins(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestDevNodesAreValidAndFindEachOther(t *testing.T) {
	for _, nodes := range []int{1, 2, 3, 5, 7} {
		d := config.DevDefaults()
		d.Nodes = nodes
		if err := d.Validate(); err != nil {
			t.Fatalf("%d nodes: %v", nodes, err)
		}
		dir := t.TempDir()
		voters := 0
		for i := range nodes {
			c := d.Node(i, dir)
			if err := c.Validate(); err != nil {
				t.Errorf("%d nodes, node %d: %v", nodes, i, err)
			}
			if c.BootstrapExpect > 0 {
				voters++
				if c.BootstrapExpect > nodes {
					t.Errorf("%d nodes, but a node waits for %d voters", nodes, c.BootstrapExpect)
				}
			}
			if i > 0 && !slices.Contains(c.Join, d.Node(0, dir).Listen.Gossip) {
				t.Errorf("node %d joins %v, without the first node", i, c.Join)
			}
			if c.Replicas > nodes {
				t.Errorf("%d nodes, %d replicas", nodes, c.Replicas)
			}
		}
		if want := d.Node(0, dir).BootstrapExpect; voters != want {
			t.Errorf("%d nodes: %d voters, --bootstrap-expect is %d", nodes, voters, want)
		}
	}
	if c := config.DevDefaults().Node(2, "d"); c.Listen.Client != "127.0.0.1:7420" || c.Listen.HTTP != "127.0.0.1:7500" {
		t.Errorf("node-3 listens on %+v", c.Listen)
	}
}

func TestDevValidateNamesEveryMistakeAtOnce(t *testing.T) {
	d := config.DevDefaults()
	d.Nodes, d.Shards, d.EtcdPort = 9, -1, 0
	err := d.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"--etcd-port: port 0", "--shards -1: use 1 to 4096, or 0 for as few as",
		"--http-port and --client-port: port 7480 would be used by node-1 HTTP and by node-9 clients",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if err := (config.Dev{Replicas: 1, Shards: 1}).Validate(); err == nil || !strings.Contains(err.Error(), "--nodes 0") {
		t.Errorf("no nodes: %v", err)
	}
}
