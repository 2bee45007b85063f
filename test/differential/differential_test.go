package differential_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/test/differential"
)

var (
	seed   = flag.Uint64("differential.seed", 0, "`seed` of the first round; 0: 1, or with -differential.for another one each time")
	steps  = flag.Int("differential.steps", 800, "`number` of steps of a round")
	rounds = flag.Int("differential.rounds", 1, "`number` of rounds, each with a seed one higher")
	long   = flag.Duration("differential.for", 0, "how `long` to go on with rounds, on one cluster after another")
	shape  = flag.Int("differential.shape", 0, "`number` of the first cluster, of those that -differential.for takes in turn")
	binary = flag.String("differential.cachenode", "", "`path` of the program to test (default: built from this repository)")
)

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.tier != nil {
		shared.tier.Stop()
		_ = os.RemoveAll(shared.dir) // no caller is left for an error
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func dial(t testing.TB, endpoint string) *grpc.ClientConn {
	t.Helper()
	cc, err := differential.Dial(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// plainSides are two etcds and no tier: they must not differ.
func plainSides(t testing.TB) differential.Sides {
	t.Helper()
	var ends []string
	for range 2 {
		e, err := etcdtest.NewProcess(context.Background(), etcdtest.ProcessConfig{
			Dir: t.TempDir(), Args: []string{"--watch-progress-notify-interval=200ms", "--log-level=error"},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Kill() })
		if err := e.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, e.Endpoint())
	}
	return differential.Sides{
		Plain: dial(t, ends[0]), Direct: dial(t, ends[1]),
		Through: []*grpc.ClientConn{dial(t, ends[1]), dial(t, ends[1])}, JSON: []string{ends[1], ends[1]},
		Behind: differential.NoneBehind(ends[1]), Loose: true, RightsOnce: true, KeepsEnded: true,
	}
}

// A comparison that finds differences between two etcds is useless.
func TestEtcdIsEtcd(t *testing.T) {
	sides := plainSides(t)
	cfg := differential.Config{Seed: firstSeed(t), Steps: 400}
	if testing.Short() {
		cfg.Steps = 200
	}
	report, err := differential.Run(t.Context(), sides, cfg)
	show(t, report, err)
}

func show(t *testing.T, r differential.Report, err error) {
	t.Helper()
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(r.Asked)) {
		calls = append(calls, fmt.Sprintf("%s %d", name[strings.LastIndexByte(name, '.')+1:], r.Asked[name]))
	}
	t.Logf("seed %d: %s; %d events told; tolerated %v", r.Seed, strings.Join(calls, ", "), r.Events, r.Tolerated)
	for _, d := range r.Differences {
		t.Error(d)
	}
	if err != nil {
		t.Error(err)
	}
}

// shared is the tier of all tests that do not change it.
var shared struct {
	sync.Mutex
	tier *differential.Tier
	dir  string
}

// theTier returns the shared tier, which the first call starts.
func theTier(t testing.TB) *differential.Tier {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.tier == nil {
		dir, err := os.MkdirTemp("", "differential-")
		if err != nil {
			t.Fatal(err)
		}
		shared.dir = dir
		shared.tier = startTier(t, differential.TierConfig{Dir: dir})
		t.Logf("shards are cut at %q", shared.tier.Cuts)
	}
	return shared.tier
}

func startTier(t testing.TB, cfg differential.TierConfig) *differential.Tier {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cfg.Binary = *binary
	tier, err := differential.StartTier(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tier
}

// firstSeed returns the seed of the first round.
func firstSeed(t testing.TB) uint64 {
	t.Helper()
	first := *seed
	switch {
	case first == 0 && *long == 0:
		first = 1
	case first == 0:
		first = differential.NewSeed()
	}
	t.Logf("seed %d", first)
	return first
}

// The tier answers as etcd does.
func TestTheTierIsEtcd(t *testing.T) {
	tier := theTier(t)
	first, each := firstSeed(t), *steps
	if testing.Short() {
		each = min(each, 300)
	}
	for i := 0; i < *rounds && !t.Failed(); i++ {
		round(t, tier, first+uint64(i), each)
	}
	if t.Failed() {
		t.Log(tier.Logs())
	}
}

// round sends the tier and etcd the same requests for some steps.
func round(t *testing.T, tier *differential.Tier, seed uint64, steps int) {
	t.Helper()
	report, err := differential.Run(t.Context(), tier.Sides, differential.Config{Seed: seed, Steps: steps, Most: 10})
	show(t, report, err)
}

// The tier keeps doing so for hours, with any distribution of keys over the nodes. See `make
// differential`.
func TestTheTierIsEtcdForLong(t *testing.T) {
	if *long == 0 {
		t.Skip("for as long as -differential.for says")
	}
	next, end := firstSeed(t), time.Now().Add(*long)
	for i := 0; time.Now().Before(end) && !t.Failed(); i++ {
		cfg := shapes()[(*shape+i)%len(shapes())]
		cfg.Dir = t.TempDir()
		tier := startTier(t, cfg)
		t.Logf("%d shards with %d replicas each, cut at %q, authentication %v", cfg.Shards, cfg.Replicas, tier.Cuts, cfg.Auth)
		for until := time.Now().Add(5 * time.Minute); time.Now().Before(until) && time.Now().Before(end) && !t.Failed(); next++ {
			round(t, tier, next, *steps)
			if !cfg.Auth {
				initial, ops := history(t, tier.Through, 8, 60, next)
				linearizable(t, next, initial, ops)
			}
		}
		if t.Failed() {
			t.Log(tier.Logs())
		}
		tier.Stop()
	}
}

func shapes() []differential.TierConfig {
	return []differential.TierConfig{
		{Shards: 8, Replicas: 2, Args: []string{"--auto-owners=false"}}, // all nodes own shards
		{Shards: 8, Replicas: 2, Auth: true},
		{Shards: 1, Replicas: 3},
		{Shards: 16, Replicas: 3},
		{Shards: 16, Replicas: 3, Args: []string{"--auto-owners=false"}},
		{Shards: 8, Replicas: 1},
		{Shards: 8, Replicas: 2, Args: []string{"--window-time", "1s"}},
		{Shards: 2, Replicas: 3, Auth: true},
	}
}

// With etcd's authentication, each user may read through the tier exactly the keys that it may read
// at etcd.
func TestTheTierIsEtcdWithAuthentication(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a tier of its own")
	}
	tier := startTier(t, differential.TierConfig{Dir: t.TempDir(), Shards: 8, Replicas: 2, Auth: true})
	defer tier.Stop()
	first := firstSeed(t)
	for i := 0; i < *rounds && !t.Failed(); i++ {
		round(t, tier, first+uint64(i), *steps/2)
	}
	if t.Failed() {
		t.Log(tier.Logs())
	}
}

// All tolerated differences are documented, word for word.
func TestKnownDifferencesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/etcd-compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	for _, k := range differential.KnownDifferences() {
		if k.Name == "" || k.Why == "" || k.Doc == "" || !strings.Contains(text, k.Doc) {
			t.Errorf("%+v: docs/etcd-compatibility.md does not say so", k)
		}
	}
}

// FuzzScript sends the tier and etcd the requests of scripted dice.
func FuzzScript(f *testing.F) {
	for seed := range byte(4) {
		script := make([]byte, 200)
		for i := range script {
			script[i] = byte(i*i) * (2*seed + 1)
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		report, err := differential.Run(t.Context(), theTier(t).Sides, differential.Config{Script: script, Steps: 100})
		show(t, report, err)
	})
}
