package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// The sides grpc and tcp also run this program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// A complete run with tiny numbers. The program checks the answers itself.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("starts etcds and nodes")
	}
	path := filepath.Join(t.TempDir(), "of", "a", "run")
	var out, errs bytes.Buffer
	code := execute([]string{
		"--only", "^(watch/(shared|connection)/prefix/25/256B/paced|storm|list/300/linearizable|get/busy|mixed)", "--sides", "etcd,proxy,native,grpc,nats,tcp", "--tls",
		"--watches", "25", "--rate", "2500", "--deliver", "200ms", "--rest", "50ms",
		"--keys", "300", "--listed", "600", "--clients", "1,3", "--page", "70", "--gets", "300", "--report", path, "--chart", path + "2.svg",
	}, &out, &errs)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	text, err := os.ReadFile(path + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	sides := map[string]int{}
	for _, x := range r.rows() {
		sides[x.load] = max(sides[x.load], len(x.values))
	}
	want := map[string]int{
		"watch/shared/prefix/25/256B/paced": 5, "watch/connection/prefix/25/256B/paced": 6, "storm/25": 1, "list/300/linearizable": 3, "get/busy/linearizable": 2, "mixed": 2,
	}
	if !maps.Equal(sides, want) {
		t.Errorf("loads and their sides: %v, want %v", sides, want)
	}
	if got := strings.Count(out.String(), "\n| "); got != len(r.rows())+1 {
		t.Errorf("%d lines in the table, %d rows", got, len(r.rows()))
	}
	for _, path := range []string{path + ".svg", path + "2.svg"} {
		chart, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(chart, new(struct{})); err != nil || !strings.Contains(string(chart), "watch/shared/prefix/25/256B/paced") {
			t.Errorf("the chart: %v\n%s", err, chart)
		}
	}
}

func TestWrongFlags(t *testing.T) {
	for args, says := range map[string]string{
		"--sides etcd,zk":     `"zk"`,
		"--sides etcd,etcd":   "twice",
		"--modes alone":       `"alone"`,
		"--keys 0":            "--keys",
		"--only (":            "--only",
		"--only nothing":      "matches no load",
		"--only watch --full": "--full",
		"--no-such-flag":      "--help",
		"list":                `"list"`,
		"report":              "name at least one run",
		"--watches 10,-1":     "--watches",
		"--rest 0s":           "--rest",
		"--rate -1":           "--rate",
	} {
		var out, errs bytes.Buffer
		if code := execute(strings.Fields(args), &out, &errs); code != 2 || !strings.Contains(errs.String(), says) {
			t.Errorf("%s: exit code %d: %s", args, code, errs.String())
		}
	}
	for args, says := range map[string]string{"--rate 5 -h": "Exit codes", "--list": "* watch/shared/prefix/1000/256B/paced\n"} {
		var out, errs bytes.Buffer
		if code := execute(strings.Fields(args), &out, &errs); code != 0 || !strings.Contains(out.String(), says) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out.String(), errs.String())
		}
	}
}

// The page mentions every side and every kind of load.
func TestThePageHasEverything(t *testing.T) {
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	c := defaults()
	words := kinds()
	for _, l := range loads(&c) {
		kind, _, _ := strings.Cut(l.name, "/")
		words = append(words, kind)
	}
	for _, w := range words {
		if !bytes.Contains(page, []byte("| `"+w)) && !bytes.Contains(page, []byte("`"+w+"/<")) {
			t.Errorf("docs/performance.md does not mention %s", w)
		}
	}
}

// The command in a line of the table runs that load and no other.
func TestNamesOfLoads(t *testing.T) {
	c := defaults()
	all := loads(&c)
	for _, l := range all {
		c.only = l.name
		if got := chosen(&c); len(got) != 1 {
			t.Errorf("--only=%s chooses %d loads", l.name, len(got))
		}
		if len(l.sides) == 0 || l.run == nil {
			t.Errorf("%s cannot run", l.name)
		}
	}
	c.only, c.changed = "", []string{"--tls=true", "--watches=5"}
	if got, want := c.again("idle"), `make bench ARGS="--only=idle --tls=true --watches=5"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// split cuts a message into buffers, as they arrive from a socket.
func split(b []byte, size int) (s mem.BufferSlice) {
	for c := range slices.Chunk(b, size) {
		s = append(s, mem.SliceBuffer(c))
	}
	return s
}

func TestScanFindsTheFields(t *testing.T) {
	kv := func(key string, mod int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), CreateRevision: 3, ModRevision: mod, Version: 1, Value: bytes.Repeat([]byte("v"), 300), Lease: 9}
	}
	header := &etcdserverpb.ResponseHeader{ClusterId: 1 << 63, MemberId: 5, Revision: 77, RaftTerm: 2}
	lists, err := proto.Marshal(&etcdserverpb.RangeResponse{Header: header, Kvs: []*mvccpb.KeyValue{kv("/a", 1), kv("/bcd", 300)}, More: true, Count: 1234})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := proto.Marshal(&etcdserverpb.WatchResponse{Header: header, WatchId: 300, Events: []*mvccpb.Event{
		{Kv: kv("/a", 1), PrevKv: kv("/a", 8)}, {Type: mvccpb.Event_DELETE, Kv: kv("/b", 1<<40)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	cancel, err := proto.Marshal(&etcdserverpb.WatchResponse{WatchId: -1, Created: true, Canceled: true, CancelReason: "because", Fragment: true})
	if err != nil {
		t.Fatal(err)
	}
	for size := 1; size <= len(lists); size++ {
		r := ranged{last: []byte("of the last one")}
		if err := r.scan(split(lists, size)); err != nil || r.keys != 2 || !r.more || r.count != 1234 || r.revision != 77 || string(r.last) != "/bcd" || r.bytes != len(lists) {
			t.Fatalf("in pieces of %d: %+v, %v", size, r, err)
		}
		w := watched{revisions: []int64{4}}
		if err := w.scan(split(watch, size)); err != nil || !slices.Equal(w.ids, []int64{300}) || !slices.Equal(w.revisions, []int64{1, 1 << 40}) || w.created {
			t.Fatalf("in pieces of %d: %+v, %v", size, w, err)
		}
		if err := w.scan(split(cancel, size)); err != nil || !slices.Equal(w.ids, []int64{-1}) || !w.created || !w.canceled || w.reason != "because" {
			t.Fatalf("in pieces of %d: %+v, %v", size, w, err)
		}
	}
}

func TestScanSeesNativeAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		m    *shardwatchv1.WatchResponse
		want watched
	}{
		"events of one watch": {&shardwatchv1.WatchResponse{WatchId: 3, Revision: 9, Events: []*shardwatchv1.Event{
			{Kv: &shardwatchv1.KeyValue{Key: []byte("k"), ModRevision: 9, Value: make([]byte, 200)}},
		}}, watched{ids: []int64{3}, revisions: []int64{9}}},
		"events of several": {&shardwatchv1.WatchResponse{WatchIds: []int64{1, 300, 1 << 40}, Revision: 9, Events: []*shardwatchv1.Event{
			{Kv: &shardwatchv1.KeyValue{Key: []byte("k"), ModRevision: 9}, PrevKv: &shardwatchv1.KeyValue{ModRevision: 2}},
		}}, watched{ids: []int64{1, 300, 1 << 40}, revisions: []int64{9}}},
		"created":  {&shardwatchv1.WatchResponse{WatchId: 3, Detail: &shardwatchv1.WatchResponse_Created{Created: &shardwatchv1.Created{Revision: 7}}}, watched{ids: []int64{3}, created: true}},
		"progress": {&shardwatchv1.WatchResponse{Detail: &shardwatchv1.WatchResponse_Progress{Progress: &shardwatchv1.Progress{Revision: 7}}}, watched{}},
		"ended":    {&shardwatchv1.WatchResponse{WatchId: 3, Detail: &shardwatchv1.WatchResponse_Ended{Ended: &shardwatchv1.Ended{Reason: 3, Message: "why"}}}, watched{ids: []int64{3}, canceled: true, reason: "why"}},
	} {
		b, err := proto.Marshal(c.m)
		if err != nil {
			t.Fatal(err)
		}
		for size := 1; size <= len(b); size++ {
			w := watched{native: true, ids: []int64{5}, revisions: []int64{5}}
			if err := w.scan(split(b, size)); err != nil || !slices.Equal(w.ids, c.want.ids) || !slices.Equal(w.revisions, c.want.revisions) ||
				w.created != c.want.created || w.canceled != c.want.canceled || w.reason != c.want.reason {
				t.Errorf("%s, in pieces of %d: %+v, %v", name, size, w, err)
			}
		}
	}
	chunk, err := proto.Marshal(&shardwatchv1.ListResponse{Revision: 77, Count: proto.Int64(1234), ClusterId: "c", Kvs: []*shardwatchv1.KeyValue{
		{Key: []byte("/a"), Value: make([]byte, 200)}, {Key: []byte("/b")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for size := 1; size <= len(chunk); size++ {
		l := listed{keys: 9}
		if err := l.scan(split(chunk, size)); err != nil || l != (listed{revision: 77, count: 1234, keys: 2}) {
			t.Fatalf("in pieces of %d: %+v, %v", size, l, err)
		}
	}
	// Not packed, as an encoder may send it.
	w := watched{native: true}
	if err := w.scan(split([]byte{0x10, 4, 0x10, 5}, 1)); err != nil || !slices.Equal(w.ids, []int64{4, 5}) {
		t.Errorf("%+v, %v", w, err)
	}
}

// For any input, scanning ends, and accepted input is decoded like protobuf does.
func FuzzScan(f *testing.F) {
	f.Add([]byte{}, uint8(1))
	f.Add([]byte{0x12, 4, 0x0a, 2, 'a', 'b', 0x18, 1, 0x20, 2}, uint8(3))
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		var r ranged
		var w watched
		listErr := r.scan(split(b, int(size)+1))
		_ = new(listed).scan(split(b, int(size)+1))
		_ = w.scan(split(b, int(size)+1))
		w.native = true
		_ = w.scan(split(b, int(size)+1))
		var m etcdserverpb.RangeResponse
		if proto.Unmarshal(b, &m) == nil && listErr == nil && r.keys != len(m.Kvs) {
			t.Errorf("%d keys, protobuf has %d", r.keys, len(m.Kvs))
		}
	})
}

func TestWatchesAreChecked(t *testing.T) {
	a := newAudience(&side{kind: sideEtcd}, shape{what: whatPrefix, watches: 2}, 9, 4)
	a.latency = map[string]*histogram{"": new(histogram)}
	for range 4 {
		a.ahead <- struct{}{}
	}
	s := &watchStream{watches: []*position{a.position(0), a.position(1)}, waiting: 2, hungry: 2}
	for _, c := range []struct {
		r      watched
		hungry int
		says   string
	}{
		{watched{ids: []int64{0}, created: true}, 2, ""},
		{watched{ids: []int64{0, 1}, revisions: []int64{10, 11}}, 2, ""},
		{watched{ids: []int64{1}}, 2, ""}, // progress
		{watched{ids: []int64{2}, revisions: []int64{12}}, 2, "watch 2"},
		{watched{ids: []int64{1}, revisions: []int64{11}}, 2, "revision 11 comes after 11"},
		{watched{ids: []int64{1}, revisions: []int64{13}}, 2, "revision 13 comes after 11"},
		{watched{ids: []int64{1}, canceled: true, reason: "why"}, 2, "why"},
		{watched{ids: []int64{0}, revisions: []int64{12, 13}}, 1, ""},
		{watched{ids: []int64{-1}}, 1, ""}, // progress of the stream
		{watched{ids: []int64{0}, revisions: []int64{14}}, 1, "more events"},
	} {
		err := a.take(s, &c.r)
		if s.hungry != c.hungry || (err == nil) != (c.says == "") || (err != nil && !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %d are hungry, %v", c.r, s.hungry, err)
		}
	}
	if s.waiting != 1 || a.delivered.Load() != 6 || len(a.ahead) != 1 {
		t.Errorf("%d wait for their creation, %d events were delivered, %d are ahead", s.waiting, a.delivered.Load(), len(a.ahead))
	}
}

// Watches of groups share all events.
func TestEveryEventIsExpected(t *testing.T) {
	for what, want := range map[string]int64{whatPrefix: 30 * 7, whatFolder: 7, whatKeys: 7} {
		a := newAudience(&side{}, shape{what: what, watches: 30}, 0, 7)
		if got := a.expected(); got != want {
			t.Errorf("%s: %d deliveries, want %d", what, got, want)
		}
	}
	sh := shape{what: whatFolder, watches: 250}
	if key, end := sh.watched(3); key > sh.key(103) || sh.key(103) >= end || sh.key(104) < end {
		t.Errorf("[%s, %s) and the keys %s, %s", key, end, sh.key(103), sh.key(104))
	}
}

func TestHistogram(t *testing.T) {
	h := new(histogram)
	if got := h.quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 1000 {
		h.add(time.Duration(i)*time.Microsecond, 2)
	}
	h.add(-time.Second, 1)
	other := new(histogram)
	other.merge(h)
	for q, want := range map[float64]time.Duration{0: 0, 0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: 999 * time.Microsecond} {
		if got := other.quantile(q); got < want-want/1000 || got > want+want/30 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	h.add(1<<63-1, 1)
	if got := h.quantile(1); got != 1<<63-1 {
		t.Errorf("the longest: %v", got)
	}
}

// Runs are combined: for each load the last result, from one machine.
func TestRunsTogether(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, r report) string {
		path := filepath.Join(dir, name)
		if err := save(path, r.json); err != nil {
			t.Fatal(err)
		}
		return path
	}
	both := map[string]string{"a": "make a", "b": "make b"}
	first := write("1.json", report{Setting: "here", Sides: []string{sideTier}, Commands: both, Measurements: []measurement{
		{"a", sideTier, "CPU", unitTime, 1}, {"b", sideTier, "CPU", unitTime, 2},
	}, Failures: []failure{{"a", sideTier, "because"}}})
	again := write("2.json", report{Setting: "here", Sides: []string{sideEtcd, sideTier}, Commands: map[string]string{"a": "make a again"}, Measurements: []measurement{
		{"a", sideEtcd, "CPU", unitTime, 3}, {"a", sideTier, "CPU", unitTime, 4},
	}})
	other := write("3.json", report{Setting: "there"})
	var out, errs bytes.Buffer
	if code := execute([]string{"--report", filepath.Join(dir, "all"), "report", first, again}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	got, err := together([]string{filepath.Join(dir, "all.json")})
	if err != nil {
		t.Fatal(err)
	}
	want := report{Setting: "here", Sides: []string{sideEtcd, sideTier}, Commands: map[string]string{"a": "make a again", "b": "make b"}, Measurements: []measurement{
		{"b", sideTier, "CPU", unitTime, 2}, {"a", sideEtcd, "CPU", unitTime, 3}, {"a", sideTier, "CPU", unitTime, 4},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	for _, files := range [][]string{{first, other}, {dir}, {first, filepath.Join(dir, "none.json")}} {
		if code := execute(append([]string{"report"}, files...), &out, &errs); code != 1 || !strings.Contains(errs.String(), files[len(files)-1]) {
			t.Errorf("%v: exit code %d: %s", files, code, errs.String())
		}
	}
}

// The table of a page for the run's setting is replaced, and nothing else.
func TestPageTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const page = "top\n<!-- results -->\nold\n<!-- end of results -->\nbetween\n<!-- results with TLS -->\nold\n<!-- end of results -->\nlast\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	r := report{Setting: "linux, go", Sides: []string{sideEtcd, sideTier}, Measurements: []measurement{
		{"a", sideEtcd, "CPU", unitTime, 4e-6},
		{"a", sideTier, "CPU", unitTime, 5e-7},
		{"a", sideTier, "memory", unitBytes, 2048},
		{"a", sideEtcd, figureTogether, unitCount, 1},
		{"a", sideTier, figureTogether, unitCount, 1},
		{"a", sideTier, "latency p99.9", unitTime, 1},
		{"b", sideEtcd, figureTogether, unitCount, 1},
		{"b", sideTier, figureTogether, unitCount, 20},
	}}
	table := "| load | figure | etcd | tier |\n|---|---|---:|---:|\n| `a` | CPU | 4.00 µs | 500 ns (0.12) |\n|  | memory |  | 2.00 KiB |\n| `b` | events in a message | 1 | 20 (20.00) |\n"
	want := strings.Replace(page, "old\n", table, 1)
	for _, setting := range []string{"linux, go", "linux, go, TLS"} {
		if r.Setting = setting; r.tls() {
			want = strings.Replace(want, "old\n", table, 1)
		}
		if err := r.replaceTable(path); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", setting, err, got, want)
		}
	}
	for _, bad := range []string{"", pageTableTLS + "\n"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.replaceTable(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", bad, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != bad {
			t.Errorf("%q became %q, %v", bad, got, err)
		}
	}
}

// The most important loads run first and on all sides, so that an interrupted run has them.
func TestStandardLoadsComeFirst(t *testing.T) {
	c := defaults()
	c.full = true
	list := chosen(&c)
	first := slices.IndexFunc(list, func(l load) bool { return !l.standard })
	if first < 1 || slices.ContainsFunc(list[first:], func(l load) bool { return l.standard }) {
		t.Errorf("%d loads, and the first that is not standard is number %d", len(list), first)
	}
	for i, l := range list {
		proxy := slices.Contains(l.sides, sideProxy)
		if i >= first && proxy || i < first && !proxy && strings.HasPrefix(l.name, "watch/") {
			t.Errorf("%s runs on %v", l.name, l.sides)
		}
	}
}

func TestTable(t *testing.T) {
	r := report{Sides: []string{sideEtcd, sideTier}, Commands: map[string]string{"a": "make it"}, Failures: []failure{{"b", sideTier, "because"}}, Measurements: []measurement{
		{"a", sideEtcd, "CPU", unitTime, 4e-6}, {"a", sideTier, "CPU", unitTime, 5e-7}, {"a", sideTier, "memory", unitBytes, 2048},
	}}
	var b strings.Builder
	r.table(&b)
	want := `

| load | figure |    etcd |     tier | /etcd | again     |
|------|--------|--------:|---------:|------:|-----------|
| a    | CPU    | 4.00 µs |   500 ns |  0.12 | ` + "`make it`" + ` |
| a    | memory |         | 2.00 KiB |       | ` + "`make it`" + ` |

FAILED: b on tier: because
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	for text, got := range map[string]string{
		"-1.50 ms": unitTime.text(-1.5e-3), "12.3 s": unitTime.text(12.3), "1.20 M/s": unitRate.text(1.2e6), "12.4 /s": unitRate.text(12.4), "3.1 %": unitShare.text(0.031), "7": unitCount.text(7), "7.2": unitCount.text(7.21),
	} {
		if got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
}
