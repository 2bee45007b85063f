package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The whole tool with tiny numbers. It checks the answers itself.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("starts etcds and nodes")
	}
	path := filepath.Join(t.TempDir(), "report")
	var out, errs bytes.Buffer
	code := execute([]string{
		"--keys", "300", "--listed", "600", "--clients", "1,3", "--page", "70", "--gets", "30",
		"--watches", "25", "--per-stream", "10", "--rates", "2500", "--deliver", "200ms", "--report", path,
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
	units := map[string]int64{}
	for _, one := range r.Results {
		if len(one.Peaks) != []int{1, 3}[one.Side] || slices.Min(one.Peaks) < 1<<20 {
			t.Errorf("side %d, %v: peaks of %d", one.Side, one.load, one.Peaks)
		}
		units[one.Kind] += one.Units
	}
	rows := len(r.rows())
	// Two lists for each client, three modes and one more with three clients.
	if lists := int64(2 * 300 * 2 * (3*(1+3) + 3)); rows != 3*2+1+2*2+1+3 || units["list"] != lists || units["watch"] != 2*25*20 || units["get"] != 2*2*2*30 {
		t.Errorf("%d rows, %v", rows, units)
	}
	if got := strings.Count(out.String(), "\n| "); got != rows+1 {
		t.Errorf("%d lines in the table, %d rows", got, rows)
	}
}

func TestWrongFlags(t *testing.T) {
	for args, says := range map[string]string{
		"--sides etcd":    "--sides",
		"--sides etcd,zk": `"zk"`,
		"--keys 0":        "--keys",
		"--only (":        "--only",
		"--no-such-flag":  "--help",
		"list":            `"list"`,
		"--watches 10,-1": "--watches",
		"--rates 5 -h ":   "",
	} {
		var out, errs bytes.Buffer
		code := execute(strings.Fields(args), &out, &errs)
		if want := 2; says != "" && (code != want || !strings.Contains(errs.String(), says)) {
			t.Errorf("%s: exit code %d: %s", args, code, errs.String())
		}
		if says == "" && (code != 0 || !strings.Contains(out.String(), "Exit codes")) {
			t.Errorf("%s: exit code %d", args, code)
		}
	}
}

// split cuts a message into buffers, as it comes from a socket.
func split(b []byte, size int) (s mem.BufferSlice) {
	for c := range slices.Chunk(b, size) {
		s = append(s, mem.SliceBuffer(c))
	}
	return s
}

func TestScanSeesWhatIsThere(t *testing.T) {
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
		if err := w.scan(split(watch, size)); err != nil || w.id != 300 || !slices.Equal(w.revisions, []int64{1, 1 << 40}) || w.created {
			t.Fatalf("in pieces of %d: %+v, %v", size, w, err)
		}
		if err := w.scan(split(cancel, size)); err != nil || w.id != -1 || !w.created || !w.canceled || !w.partial || w.reason != "because" {
			t.Fatalf("in pieces of %d: %+v, %v", size, w, err)
		}
	}
}

// Whatever comes, scanning ends, and what it accepts is what protobuf reads.
func FuzzScan(f *testing.F) {
	f.Add([]byte{}, uint8(1))
	f.Add([]byte{0x12, 4, 0x0a, 2, 'a', 'b', 0x18, 1, 0x20, 2}, uint8(3))
	f.Add([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		var r ranged
		var w watched
		listErr := r.scan(split(b, int(size)+1))
		_ = w.scan(split(b, int(size)+1))
		var m etcdserverpb.RangeResponse
		if proto.Unmarshal(b, &m) == nil && listErr == nil && r.keys != len(m.Kvs) {
			t.Errorf("%d keys, protobuf has %d", r.keys, len(m.Kvs))
		}
	})
}

func TestWatchesAreChecked(t *testing.T) {
	s := &watchStream{next: map[int64]int64{3: 10}}
	for _, c := range []struct {
		r    watched
		done bool
		says string
	}{
		{watched{id: 3, revisions: []int64{10, 11}}, false, ""},
		{watched{id: 3}, false, ""}, // progress
		{watched{id: 4, revisions: []int64{12}}, false, "watch 4"},
		{watched{id: 3, revisions: []int64{11}}, false, "revision 11 where 12 comes next"},
		{watched{id: 3, revisions: []int64{13}}, false, "revision 13 where 12 comes next"},
		{watched{id: 3, canceled: true, reason: "why"}, false, "why"},
		{watched{id: 3, revisions: []int64{12, 13}}, true, ""},
		{watched{id: 3}, false, ""},
	} {
		done, err := s.take(&c.r, 13)
		if done != c.done || (err == nil) != (c.says == "") || (err != nil && !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %v, %v", c.r, done, err)
		}
	}
}

// A report is judged by what is in it.
func TestGoals(t *testing.T) {
	list := func(side, clients int, cpu time.Duration, peak int64) result {
		return result{load: load{Kind: "list", Keys: 10, Mode: paged, Clients: clients}, Side: side, Units: 10, measured: measured{CPU: cpu, Peaks: []int64{peak}}}
	}
	r := report{Sides: []string{"etcd", "tier"}, Results: []result{list(0, 1, 4, 100), list(0, 50, 4, 900), list(1, 1, 1, 100), list(1, 50, 5, 151)}}
	got := strings.Join(r.goals(), "\n")
	for _, want := range []string{
		"reached  less CPU, list 10 keys, paged, 1 at a time: 0.25",
		"MISSED   less CPU, list 10 keys, paged, 50 at a time: 1.25",
		"MISSED   at most 1.5 times the memory of one, list 10 keys, paged, 50 at a time: 1.51",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
