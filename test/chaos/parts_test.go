package chaos

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/check"
	"github.com/shardwatch/shardwatch/internal/kv"
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
		if err := p.kill(); err != nil { // also when it sleeps
			t.Fatal(err)
		}
		if on, err := p.running(); on || err == nil {
			t.Fatalf("running %v, ended with %v", on, err)
		}
		if err := p.kill(); err != nil {
			t.Fatalf("a second kill: %v", err)
		}
		if err := p.signal(9); err == nil {
			t.Fatal("a signal to nobody went well")
		}
	}
	if err := (&process{name: "nothing", bin: "/does/not/exist", log: log}).start(); err == nil {
		t.Fatal("started nothing")
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
	a.add(4) // another writer, slower
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

func TestWishesAreMixed(t *testing.T) {
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

func TestRequestLogTellsListsFromOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	line := func(method, content string) string {
		return `{"level":"debug","msg":"request stats","response type":"` + method + `","request content":"` + content + `"}` + "\n"
	}
	const get = "/etcdserverpb.KV/Range"
	log := line(get, `key:\"/\" count_only:true`) +
		line(get, `key:\"/p\" range_end:\"/q\"`) +
		line(get, `key:\"\\x00\" range_end:\"\\x00\" keys_only:true`) +
		line(get, `key:\"/p\" range_end:\"/q\" limit:1`) +
		line(get, `key:\"/p\" range_end:\"/q\" revision:7 sort_order:ASCEND`) +
		line(get, `key:\"/p\"`) +
		line("/etcdserverpb.KV/DeleteRange", `key:\"/p\" range_end:\"/q\"`)
	if err := os.WriteFile(path, []byte(log+"half a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := &requestLog{etcd: &etcd{proc: &process{log: path}}}
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
	for _, want := range []string{`"kil"`, "nodes (2)", "min rate (500)", "watches (0)", `"http"`, "(100 %)", "big (-1)", "dir is empty"} {
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

func TestReportSumsUp(t *testing.T) {
	r := newReport(Config{Shards: 2, Replicas: 2, Seed: 7})
	second := []time.Duration{time.Second}
	first := Cycle{Number: 1, Fault: "kill", Node: "node-1", WritesPerSecond: 600, WatchesAtEtcd: 3}
	first.part(map[kind]*measured{nativeClient: {watches: 1, events: 10, worst: "it", gaps: gaps{Stayed: second}}})
	first.read(Etcd, &judged{reads: 7, refused: map[string]int{"no": 2}})
	r.add(first)
	r.add(Cycle{Number: 2, Fault: "kill", Node: "node-2", Events: 5, Void: "100 writes/s", WritesPerSecond: 100, gaps: gaps{Stayed: []time.Duration{time.Hour}}})
	r.add(Cycle{Number: 3, Fault: "pause", Node: "node-2", Events: 20, WritesPerSecond: 550, WatchesAtEtcd: 5, gaps: gaps{Moved: second}})
	if f := r.Failed(); len(f) != 0 {
		t.Errorf("failed: %v", f)
	}
	r.finish()
	if p := r.Clients; len(p) != 2 || p[0].Gap.Max != time.Second || p[0].Worst != "it" || p[1].Reads != 7 || p[1].Refused != 2 {
		t.Errorf("%+v", p)
	}
	if s := r.Total; s.Cycles != 2 || s.Void != 1 || s.Events != 35 || s.Stayed.Max != time.Second || s.WritesPerSecond != 550 || s.WatchesAtEtcd != 5 {
		t.Errorf("%+v", s)
	}
	v := check.Violation{Promise: check.PromiseUnique, Watcher: "w"}
	r.note([]check.Violation{v, v})
	r.Total.Violations = 1
	if len(r.Violations) != 1 || len(r.Failed()) != 1 {
		t.Errorf("%v, %v", r.Violations, r.Failed())
	}
	var table, page, data bytes.Buffer
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	if err := r.Markdown(&page); err != nil {
		t.Fatal(err)
	}
	if err := r.JSON(&data); err != nil || !json.Valid(data.Bytes()) {
		t.Fatal(err)
	}
	for _, want := range []string{"kill", "pause", "1s/1s/1s", "≥ 550", "unique: w", "7 (2 refused)"} {
		if !strings.Contains(table.String(), want) || !strings.Contains(page.String(), want) {
			t.Errorf("%q is missing in\n%s\n%s", want, &table, &page)
		}
	}
}
