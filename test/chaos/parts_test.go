package chaos

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/config"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/check"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

func TestProcessLives(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p := &process{name: "sleeper", bin: "/bin/sh", args: []string{"-c", "echo started; exec sleep 60"}, log: log}
	for range 2 { // twice on the same log
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
		if err := p.start(); err == nil {
			t.Fatal("started twice")
		}
		if err := (&Node{proc: p}).Pause(); err != nil {
			t.Fatal(err)
		}
		if err := p.kill(); err != nil { // also if it is stopped
			t.Fatal(err)
		}
		if on, err := p.running(); on || err == nil {
			t.Fatalf("running %v, ended with %v", on, err)
		}
		if err := p.kill(); err != nil {
			t.Fatalf("a second kill: %v", err)
		}
		if err := p.signal(9); err == nil {
			t.Fatal("a signal to no process succeeded")
		}
	}
	if err := (&process{name: "nothing", bin: "/does/not/exist", log: log}).start(); err == nil {
		t.Fatal("started nothing")
	}
}

func TestFaultsThatNeedOthersHaveASiteOfTheirOwn(t *testing.T) {
	cfg := Defaults()
	cfg.Faults, cfg.Cycles = []string{"kill", "hot", "restore-older", "pause-2s", "rebuilt"}, 10
	cfg.Members = 3
	var got []string
	for _, s := range sites(cfg) {
		what := fmt.Sprint(s.members, len(s.flags) > 0)
		for _, f := range s.faults {
			what += " " + f.Name
		}
		got = append(got, what)
	}
	if want := []string{"3 false kill pause-2s kill pause-2s", "3 true hot hot", "1 false restore-older restore-older", "1 false rebuilt rebuilt"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The size of a map and its newest ID determine its changes.
func TestMapChanges(t *testing.T) {
	m, err := shard.Apply(nil, shard.Command{Change: shard.Found{
		ClusterID: "c", EtcdClusterID: 1, Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 1, Replicas: 1}, Replicas: [][]shard.NodeID{{"a"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	first := m
	for i, c := range []struct {
		change         shard.Change
		splits, merges int
	}{
		{shard.Split{Shard: 1, At: []string{"m"}}, 1, 0},
		{shard.Split{Shard: 3, At: []string{"t"}}, 2, 0},
		{shard.Merge{Shards: []shard.ID{2, 4}, Replicas: []shard.NodeID{"a"}}, 2, 1},
		{shard.Assign{Moves: []shard.Move{{Shard: 5, Replicas: []shard.NodeID{"b"}}}}, 2, 1},
		{shard.Split{Shard: 6, At: []string{"f"}}, 3, 1},
	} {
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c.change}); err != nil {
			t.Fatal(err)
		}
		if splits, merges := mapChanges(first, m); splits != c.splits || merges != c.merges {
			t.Errorf("after %d changes: %d splits and %d merges, want %d and %d", i+1, splits, merges, c.splits, c.merges)
		}
	}
}

func TestQuantiles(t *testing.T) {
	var ds []time.Duration
	for i := 100; i >= 1; i-- {
		ds = append(ds, time.Duration(i))
	}
	for _, c := range []struct {
		in   []time.Duration
		want Quantiles
	}{
		{nil, Quantiles{}},
		{ds[:1], Quantiles{1, 100, 100, 100}},
		{ds, Quantiles{100, 50, 99, 100}},
	} {
		if got := quantiles(c.in); got != c.want {
			t.Errorf("%d durations: %+v, want %+v", len(c.in), got, c.want)
		}
	}
}

func TestAckLog(t *testing.T) {
	var a ackLog
	if a.newest() != 0 {
		t.Error("something was acknowledged before anything was written")
	}
	before := time.Now()
	a.add(5)
	a.add(4) // a slower writer
	a.add(7)
	if got := a.newest(); got != 7 {
		t.Errorf("newest %d, want 7", got)
	}
	if got := a.before(before); got != 0 {
		t.Errorf("%d was acknowledged before it was written", got)
	}
	for i := range int64(3 * ackMemory) {
		a.add(8 + i)
	}
	if got, want := a.newest(), int64(7+3*ackMemory); got != want || len(a.revs) > 2*ackMemory {
		t.Errorf("newest %d of %d entries, want %d", got, len(a.revs), want)
	}
}

func TestRequestedWatchesAreMixed(t *testing.T) {
	keys := keyspace{16, 200}
	count := map[string]int{}
	for _, w := range wishes(nativeClient, 1000, Mix{Prefixes: 25, Everything: 5}, keys, 100, rand.New(rand.NewPCG(1, 1))) {
		switch {
		case w.watch.Range == kv.Prefix("/"):
			count["everything"]++
		case w.watch.Range.IsSingle():
			count["key"]++
		default:
			count["prefix"]++
		}
		if (w.start == fromRevision) != (w.watch.Start == 101) {
			t.Errorf("%+v starts at %d", w, w.watch.Start)
		}
	}
	if count["everything"] != 50 || count["prefix"] != 250 || count["key"] != 700 {
		t.Error(count)
	}
	for _, w := range wishes(etcdStream, 1000, Mix{Prefixes: 25, Everything: 5}, keys, 100, rand.New(rand.NewPCG(1, 1))) {
		for what, is := range map[string]bool{
			"from a key on": w.watch.Range.End == "" && w.watch.Range.Start != "", "all": w.watch.Range == kv.Range{},
			"middle": strings.Contains(w.watch.Name, "middle"), "puts": w.watch.NoDeletes, "deletes": w.watch.NoPuts,
			"notify": w.notify, "fragment": w.fragment, "leader": w.leader,
		} {
			if is {
				count[what]++
			}
		}
		if w.watch.NoPuts && w.watch.NoDeletes {
			t.Errorf("%+v sees nothing", w)
		}
	}
	if len(count) != 3+8 {
		t.Error(count)
	}
}

func TestKindsShareTheWatches(t *testing.T) {
	for _, c := range []struct {
		apis []string
		want map[kind]int
	}{
		{[]string{Native}, map[kind]int{nativeClient: 101}},
		{[]string{Etcd}, map[kind]int{etcdClient: 50, etcdStream: 51}},
		{APIs(), map[kind]int{nativeClient: 51, etcdClient: 25, etcdStream: 25}},
	} {
		order, has := kinds(c.apis, 101)
		if !maps.Equal(has, c.want) || len(order) != len(c.want) {
			t.Errorf("%v: %v in the order %v", c.apis, has, order)
		}
	}
}

// A restarted node counts its lists from 0.
func TestListsOfNodesAddUp(t *testing.T) {
	var l nodeLists
	a, b := &Node{}, &Node{}
	for _, told := range []struct {
		n     *Node
		lists float64
	}{{a, 5}, {b, 1}, {a, 6}, {b, 1}, {a, 2}, {a, 2}} {
		l.add(told.n, told.lists)
	}
	if got := l.take(t.Context(), &Cluster{}); got != 9 {
		t.Errorf("%d lists, want 9", got)
	}
	if got := l.take(t.Context(), &Cluster{}); got != 0 {
		t.Errorf("%d lists more", got)
	}
}

func TestRequestLogDistinguishesLists(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	line := func(method, content string) string {
		return `{"level":"debug","msg":"request stats","response type":"` + method + `","request content":"` + content + `"}` + "\n"
	}
	const get = "/etcdserverpb.KV/Range"
	log := line(get, `key:\"/\" count_only:true`) +
		line(get, `key:\"/p\" range_end:\"/q\"`) +
		line(get, `key:\"\\x00\" range_end:\"\\x00\" keys_only:true`) +
		line(get, `key:\"/p/7\\x00\" range_end:\"/q\" limit:128 revision:7`) +
		line(get, `key:\"/p\" range_end:\"/q\" limit:1`) +
		line(get, `key:\"/p\" range_end:\"/q\" revision:7 sort_order:ASCEND`) +
		line(get, `key:\"/p\"`) +
		line("/etcdserverpb.KV/DeleteRange", `key:\"/p\" range_end:\"/q\"`)
	if err := os.WriteFile(path, []byte(log+"half a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := &requestLog{member: &member{proc: &process{log: path}}}
	c, err := l.logged()
	if err != nil || c.Lists != 2 || c.Passed != 1 || c.Others != 3 || !strings.Contains(c.Sample, "keys_only") {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err := l.logged(); err != nil || c != (rangeCounts{}) {
		t.Fatalf("counted twice: %+v, %v", c, err)
	}
}

func TestConfigNamesEveryMistake(t *testing.T) {
	c := Defaults()
	c.Big = -1
	c.Faults, c.Nodes, c.Rate, c.Watches, c.APIs, c.Passed = []string{"kil"}, 2, 10, 0, []string{"http"}, 100
	err := c.Validate()
	for _, want := range []string{`"kil"`, "nodes (2)", "min rate (200)", "watches (0)", `"http"`, "(100 %)", "big (-1)", "dir is empty"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	c = Defaults()
	c.Dir = "."
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// The run has more shards than a cluster bootstrapped with the shipped manifests, so that watches
// merge several, and shards move one by one.
func TestShardsAreMoreThanThoseOfTheManifests(t *testing.T) {
	shipped, err := nodetest.ReadShipped(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	node := config.Defaults()
	for _, setting := range shipped.Env {
		name, value, _ := strings.Cut(setting, "=")
		switch name {
		case "CACHENODE_BOOTSTRAP_EXPECT":
			if node.BootstrapExpect, err = strconv.Atoi(value); err != nil {
				t.Fatal(err)
			}
		case "CACHENODE_SHARDS", "CACHENODE_PREFIX":
			t.Errorf("%s decides how many shards there are: compare that with Defaults", setting)
		}
	}
	if got, least := Defaults().Shards, node.FoundingShards(); got <= least {
		t.Errorf("%d shards, the manifests found %d", got, least)
	}
}

func TestReportSumsUp(t *testing.T) {
	cfg := Config{Shards: 2, Replicas: 2, Seed: 7}
	r := newReport(cfg)
	cycle := func(fault, void string, late time.Duration, writes float64) Cycle {
		c := Cycle{Fault: fault, Seed: 7, Node: "node-1", Void: void, WritesPerSecond: writes, WatchesAtEtcd: 3, WatchesAllowed: 5}
		c.part(map[kind]*measured{
			nativeClient: {watches: 1, events: 10, worst: "it", late: delays{Stayed: millis{late}}, catchUps: catchUps{Deltas: 1}},
			etcdClient:   {watches: 1, events: 5, late: delays{Moved: millis{2 * late}}, catchUps: catchUps{Relists: 2}},
		})
		c.read(Etcd, &judged{reads: 7, refused: map[string]int{"no": 2}})
		return c
	}
	dir := t.TempDir()
	for _, c := range []Cycle{
		cycle("pause-2s", "", 10*time.Millisecond, 550), cycle("kill", "", time.Second, 600),
		cycle("kill", "100 writes/s", time.Hour, 100), cycle("kill", "", 3*time.Second, 700),
	} {
		r.add(c)
		if err := Append(filepath.Join(dir, "a"), c); err != nil {
			t.Fatal(err)
		}
	}
	if f := r.Failed(); len(f) != 0 {
		t.Errorf("failed: %v", f)
	}
	again, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Report{&r, &again} {
		rows := r.rows()
		if len(rows) != 3 || rows[0].fault != "kill" || rows[2].fault != "all" {
			t.Fatalf("%+v", rows)
		}
		rows[2].lists = 3 // of faults with permitted lists
		if m := rows[2].missed(); len(m) != 0 {
			t.Errorf("the sum of all faults missed: %v", m)
		}
		kill := rows[0]
		if kill.cycles != 2 || kill.void != 1 || kill.events != 45 || kill.writes != 600 || quantiles(kill.late[nativeClient]).Max != 3*time.Second {
			t.Errorf("%+v", kill)
		}
		if m := r.Missed(); len(m) != 1 || !strings.Contains(m[0], "kill: native p99 of 3s, target 1s; the worst was it") {
			t.Errorf("missed: %v", m)
		}
		var text, page bytes.Buffer
		if err := r.Text(&text); err != nil {
			t.Fatal(err)
		}
		if err := r.Markdown(&page); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"2 (+1 void)", "1s/3s/3s", "2s/6s/6s", "pause-2s", "**missed**", "kill: native p99"} {
			if !strings.Contains(text.String(), want) || !strings.Contains(page.String(), want) {
				t.Errorf("%q is missing in\n%s\n%s", want, &text, &page)
			}
		}
	}
	v := check.Violation{Promise: check.PromiseUnique, Watcher: "w"}
	c := cycle("kill", "", 0, 1)
	c.note(r.fresh([]check.Violation{v}))
	c.note(r.fresh([]check.Violation{v}))
	c.broken(Native, 2)
	r.add(c)
	if len(r.Violations()) != 1 || len(r.Failed()) != 1 {
		t.Errorf("%v, %v", r.Violations(), r.Failed())
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("read a report that is not there")
	}
}
