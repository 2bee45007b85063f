package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

func TestRangeWire(t *testing.T) {
	for _, c := range []struct {
		r        Range
		key, end string
		text     string
	}{
		{Range{}, "\x00", "\x00", `["", ∞)`},
		{Key("a"), "a", "", `"a"`},
		{Prefix("a"), "a", "b", `["a", "b")`},
		{Prefix("a\xff"), "a\xff", "b", `["a\xff", "b")`},
		{Prefix("\xff"), "\xff", "\x00", `["\xff", ∞)`},
		{Prefix(""), "\x00", "\x00", `["", ∞)`},
		{Between("", "m"), "\x00", "m", `["", "m")`},
		{Key("\x00"), "\x00", "", `"\x00"`},
	} {
		key, end := c.r.wire()
		if string(key) != c.key || string(end) != c.end || c.r.validate() != nil {
			t.Errorf("%v on the wire is %q, %q (%v)", c.r, key, end, c.r.validate())
		}
		if start, stop := keyrange.Decode(key, end); Between(start, stop) != c.r {
			t.Errorf("%v is decoded as %v", c.r, Between(start, stop))
		}
		if c.r.String() != c.text {
			t.Errorf("%v, want %s", c.r, c.text)
		}
	}
	for _, r := range []Range{Key(""), Between("b", "a"), Between("a", "a")} {
		if err := r.validate(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%v: %v", r, err)
		}
	}
}

func TestConfigNamesEveryMistake(t *testing.T) {
	err := Config{
		Endpoints: []string{"host"}, Silence: time.Millisecond, AttemptTimeout: -1, RetryFor: -1, Buffer: -1,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12}, TLSFiles: TLSFiles{CA: "ca.crt"},
		Username: "ann", Password: "x", PasswordFrom: PasswordFile("password"),
	}.Validate()
	for _, want := range []string{`"host"`, "silence", "attempt timeout", "retry for", "buffer", "TLSFiles", "PasswordFrom"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("no endpoints, no error")
	}
	if err := (Config{Endpoints: []string{"[::1]:7400", "host:1"}, Username: "ann", PasswordFrom: PasswordFile("password")}).Validate(); err != nil {
		t.Error(err)
	}
	_, err = New(Config{Endpoints: []string{"host:1"}, TLSFiles: TLSFiles{CA: "none.crt", Cert: "none.crt"}})
	for _, want := range []string{"TLSFiles: ", "CA: none.crt: no such file", "Cert is given but Key is not"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

// A watch without units ends if a node starts it in another history, and the error reports
// whether the history is another cluster's.
func TestTheErrorNamesAnotherCluster(t *testing.T) {
	for _, c := range []struct {
		ours, there history
		want, not   error
	}{
		{history{"a", 1}, history{"b", 1}, ErrCluster, nil},
		{history{"a", 1}, history{"b", 2}, ErrCluster, nil},
		{history{"a", 1}, history{"a", 2}, ErrLineage, ErrCluster},
		{history{"", 1}, history{"b", 2}, ErrLineage, ErrCluster}, // of an unknown cluster
	} {
		a := assembler{noResync: true, positioned: true, position: 5, history: c.ours}
		err := a.start(&pb.Created{ClusterId: c.there.cluster, Lineage: c.there.lineage, Revision: 5})
		if !errors.Is(err, c.want) || !errors.Is(err, ErrLineage) || c.not != nil && errors.Is(err, c.not) {
			t.Errorf("from %v to %v: %v, want %v", c.ours, c.there, err, c.want)
		}
	}
}

// A unit has a default bound. A program can set another one, or none.
func TestUnitsAreBoundedByDefault(t *testing.T) {
	for set, want := range map[int]int{0: 1 << 30, 1000: 1000, -1: -1} {
		c := Config{Endpoints: []string{"a:1"}, MaxUnit: set}
		if got := c.withDefaults().MaxUnit; got != want || c.Validate() != nil {
			t.Errorf("max unit %d: %d, %v", set, got, c.Validate())
		}
	}
}

// Errors of nodes become errors of this package, with their details.
func TestErrorsOfNodes(t *testing.T) {
	fail := func(code codes.Code, reason string, meta map[string]string) error {
		s, err := status.New(code, "text").WithDetails(&errdetails.ErrorInfo{Domain: outcome.Domain, Reason: reason, Metadata: meta})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Errorf("some deed: %w", s.Err())
	}
	var compacted *CompactedError
	if err := judge(fail(codes.OutOfRange, "COMPACTED", map[string]string{"requested": "3", "floor": "9"})).Err; !errors.As(err, &compacted) || *compacted != (CompactedError{3, 9}) {
		t.Errorf("compacted: %v", err)
	}
	var future *FutureRevisionError
	if err := judge(fail(codes.OutOfRange, "FUTURE_REVISION", map[string]string{"requested": "9", "current": "3"})).Err; !errors.As(err, &future) || *future != (FutureRevisionError{9, 3}) {
		t.Errorf("future: %v", err)
	}
	var invalid *InvalidError
	if err := judge(fail(codes.InvalidArgument, "INVALID_REQUEST", map[string]string{"field": "limit", "reason": "negative"})).Err; !errors.As(err, &invalid) || *invalid != (InvalidError{"limit", "negative"}) || !errors.Is(err, ErrInvalid) {
		t.Errorf("invalid: %v", err)
	}
}

func events(revision int64, fragment bool, keys ...string) *pb.WatchResponse {
	r := &pb.WatchResponse{Revision: revision, Fragment: fragment}
	for _, k := range keys {
		r.Events = append(r.Events, &pb.Event{Kv: &pb.KeyValue{Key: []byte(k), ModRevision: revision}})
	}
	return r
}

func progress(revision int64) *pb.WatchResponse {
	return &pb.WatchResponse{Detail: &pb.WatchResponse_Progress{Progress: &pb.Progress{Revision: revision}}}
}

func state(revision int64, begin, end bool, keys ...string) *pb.WatchResponse {
	s := &pb.Sync{Kind: pb.SyncKind_SYNC_KIND_STATE, Revision: revision, Begin: begin, End: end}
	for _, k := range keys {
		s.Kvs = append(s.Kvs, &pb.KeyValue{Key: []byte(k), ModRevision: revision})
	}
	return &pb.WatchResponse{Detail: &pb.WatchResponse_Sync{Sync: s}}
}

// unit returns a whole delta, unless changed, with the changed keys and, after a dash, the
// deleted ones.
func unit(from, to int64, keys string, change ...func(*pb.Sync)) *pb.WatchResponse {
	s := &pb.Sync{Kind: pb.SyncKind_SYNC_KIND_DELTA, FromRevision: from, Revision: to, Begin: true, End: true}
	for _, k := range strings.Fields(keys) {
		if d, ok := strings.CutPrefix(k, "-"); ok {
			s.Deleted = append(s.Deleted, []byte(d))
		} else {
			s.Kvs = append(s.Kvs, &pb.KeyValue{Key: []byte(k), ModRevision: to})
		}
	}
	for _, f := range change {
		f(s)
	}
	return &pb.WatchResponse{Detail: &pb.WatchResponse_Sync{Sync: s}}
}

func resync(s *pb.Sync)    { s.Kind, s.FromRevision = pb.SyncKind_SYNC_KIND_RESYNC, 0 }
func conflated(s *pb.Sync) { s.Kind = pb.SyncKind_SYNC_KIND_CONFLATED }
func first(s *pb.Sync)     { s.End = false }
func middle(s *pb.Sync)    { s.Begin, s.End = false, false }
func last(s *pb.Sync)      { s.Begin = false }

// Each case has the messages of one or more nodes, and the resulting updates.
func TestAssembler(t *testing.T) {
	next := &pb.WatchResponse{}     // marker: the stream breaks, another node starts the watch
	restored := &pb.WatchResponse{} // also a break, and that node follows a later history
	lags := &pb.WatchResponse{}     // also a break, and that node follows the first history
	at10 := assembler{positioned: true, position: 10, history: history{lineage: 1}}
	for name, c := range map[string]struct {
		a    assembler
		in   []*pb.WatchResponse
		want string
	}{
		"batches":                         {assembler{}, []*pb.WatchResponse{events(11, false, "a"), events(12, false, "a", "b")}, "batch@11/1 batch@12/2 ask 13"},
		"duplicates are dropped":          {assembler{}, []*pb.WatchResponse{events(11, false, "a"), events(11, false, "a"), events(10, false, "a")}, "batch@11/1 ask 12"},
		"fragments":                       {assembler{}, []*pb.WatchResponse{events(11, true, "a"), events(11, true, "b"), events(11, false, "c")}, "batch@11/3 ask 12"},
		"a cut in a revision":             {assembler{}, []*pb.WatchResponse{events(11, true, "a"), next, events(11, true, "a"), events(11, false, "b")}, "ask 11 batch@11/2 ask 12"},
		"a cut before the last":           {assembler{}, []*pb.WatchResponse{events(11, false, "a"), events(12, true, "a"), next, progress(11)}, "batch@11/1 ask 12 ask 12"},
		"progress in a revision":          {assembler{}, []*pb.WatchResponse{events(11, true, "a"), progress(11), next}, "ask 11 ask 11"},
		"progress":                        {assembler{}, []*pb.WatchResponse{progress(15), events(14, false, "a"), progress(14), next}, "progress@15 ask 16 ask 16"},
		"another revision inside":         {assembler{}, []*pb.WatchResponse{events(11, true, "a"), events(12, false, "a")}, "broken ask 11"},
		"a foreign key":                   {assembler{rng: Prefix("a")}, []*pb.WatchResponse{events(11, false, "b")}, "broken ask 11"},
		"an event without a key":          {assembler{}, []*pb.WatchResponse{events(11, false, "")}, "broken ask 11"},
		"state":                           {assembler{wantState: true}, []*pb.WatchResponse{state(20, true, false, "a"), progress(19), state(20, false, true, "b"), events(20, false, "b"), events(21, false, "a")}, "state@20/2 batch@21/1 ask 22"},
		"an empty state":                  {assembler{wantState: true}, []*pb.WatchResponse{state(20, true, true)}, "state@20/0 ask 21"},
		"a cut in a state":                {assembler{wantState: true}, []*pb.WatchResponse{state(20, true, false, "a"), next, state(25, true, true, "b"), next}, "ask state state@25/1 ask 26 ask 26"},
		"a state without begin":           {assembler{wantState: true}, []*pb.WatchResponse{state(20, false, true, "a")}, "broken ask state"},
		"events in a state":               {assembler{wantState: true}, []*pb.WatchResponse{state(20, true, false, "a"), events(21, false, "a")}, "broken ask state"},
		"a delta for a state":             {assembler{wantState: true}, []*pb.WatchResponse{unit(10, 20, "a")}, "broken ask state"},
		"an unasked state":                {assembler{}, []*pb.WatchResponse{state(20, true, true, "a")}, "broken ask 11"},
		"a future start":                  {assembler{positioned: true, position: 99}, []*pb.WatchResponse{progress(50), events(60, false, "a"), events(100, false, "a")}, "batch@100/1 ask 101"},
		"a start that skips":              {assembler{noResync: true, positioned: true, position: 5}, []*pb.WatchResponse{events(11, false, "a")}, "broken broken ask 6"},
		"a start that skips, and no unit": {assembler{positioned: true, position: 5}, []*pb.WatchResponse{events(11, false, "a")}, "broken ask 6"},
		"another lineage, and no unit":    {assembler{noResync: true, positioned: true, position: 50, history: history{lineage: 9}}, nil, "lineage ask 51"},

		"a delta":                     {at10, []*pb.WatchResponse{unit(10, 20, "b -c a"), events(20, false, "a"), events(21, false, "a")}, "delta@10-20/2-1 batch@21/1 ask 22"},
		"a delta in parts":            {at10, []*pb.WatchResponse{unit(10, 20, "b", first), unit(0, 20, "a -d", middle), progress(15), unit(0, 20, "-c", last)}, "delta@10-20/2-2 ask 21"},
		"a cut in a delta":            {at10, []*pb.WatchResponse{unit(10, 20, "b", first), unit(0, 20, "a", middle), next, unit(10, 25, "a")}, "ask 11 delta@10-25/1-0 ask 26"},
		"a cut, then the window":      {at10, []*pb.WatchResponse{unit(10, 20, "b", first), next, events(12, false, "b")}, "ask 11 batch@12/1 ask 13"},
		"a delta of another position": {at10, []*pb.WatchResponse{unit(11, 20, "b")}, "broken ask 11"},
		"a delta from before":         {at10, []*pb.WatchResponse{events(15, false, "a"), unit(10, 20, "a b")}, "batch@15/1 delta@15-20/2-0 ask 21"},
		"a delta twice":               {at10, []*pb.WatchResponse{unit(10, 20, "a"), unit(10, 20, "a"), events(21, false, "a")}, "delta@10-20/1-0 batch@21/1 ask 22"},
		"a delta of the past":         {at10, []*pb.WatchResponse{progress(30), unit(10, 20, "a")}, "progress@30 behind ask 31"},
		"a part twice":                {at10, []*pb.WatchResponse{unit(10, 20, "a", first), unit(0, 20, "b", middle), unit(0, 20, "b", middle), unit(0, 20, "", last)}, "broken ask 11"},
		"a unit begun again":          {at10, []*pb.WatchResponse{unit(10, 20, "a", first), unit(0, 20, "b", middle), unit(10, 25, "c", first), unit(0, 25, "d", last)}, "delta@10-25/2-0 ask 26"},
		"a resync in a delta":         {at10, []*pb.WatchResponse{unit(10, 20, "a", first), unit(0, 30, "b", resync)}, "resync@30/1 ask 31"},
		"an end alone":                {at10, []*pb.WatchResponse{unit(0, 20, "a", last)}, "broken ask 11"},
		"two kinds in one":            {at10, []*pb.WatchResponse{unit(10, 20, "a", first), unit(0, 20, "b", last, resync)}, "broken ask 11"},
		"two revisions in one":        {at10, []*pb.WatchResponse{unit(10, 20, "a", first), unit(0, 21, "b", last)}, "broken ask 11"},
		"events in a delta":           {at10, []*pb.WatchResponse{unit(10, 20, "a", first), events(20, false, "a")}, "broken ask 11"},
		"a delta in a revision":       {at10, []*pb.WatchResponse{events(11, true, "a"), unit(10, 20, "a")}, "broken ask 11"},
		"deleted and changed":         {at10, []*pb.WatchResponse{unit(10, 20, "a b -b")}, "broken ask 11"},
		"deleted twice":               {at10, []*pb.WatchResponse{unit(10, 20, "-b -a -b")}, "broken ask 11"},
		"a unit with foreign keys":    {assembler{rng: Prefix("a"), positioned: true, position: 10}, []*pb.WatchResponse{unit(10, 20, "a -b")}, "broken ask 11"},
		"a kind of tomorrow":          {at10, []*pb.WatchResponse{unit(10, 20, "a", func(s *pb.Sync) { s.Kind = 9 })}, "broken ask 11"},
		"conflated":                   {assembler{conflate: time.Second, positioned: true, position: 10}, []*pb.WatchResponse{unit(10, 20, "a", conflated), unit(20, 30, "-a", conflated)}, "conflated@10-20/1-0 conflated@20-30/0-1 ask 31"},
		"conflated, unasked":          {at10, []*pb.WatchResponse{unit(10, 20, "a", conflated)}, "broken ask 11"},
		"a unit, not allowed":         {assembler{noResync: true, positioned: true, position: 10}, []*pb.WatchResponse{unit(10, 20, "a")}, "broken ask 11"},
		"too big":                     {assembler{maxUnit: 3 * overhead, positioned: true, position: 10}, []*pb.WatchResponse{unit(10, 20, "a b", first), unit(10, 20, "-c", last)}, "too big ask 11"},

		"a resync":                        {at10, []*pb.WatchResponse{unit(0, 20, "a b", resync, first), unit(0, 20, "c", resync, last), events(21, false, "a")}, "resync@20/3 batch@21/1 ask 22"},
		"an empty resync":                 {at10, []*pb.WatchResponse{unit(0, 20, "", resync)}, "resync@20/0 ask 21"},
		"a resync out of order":           {at10, []*pb.WatchResponse{unit(0, 20, "b a", resync)}, "broken ask 11"},
		"a resync with deletes":           {at10, []*pb.WatchResponse{unit(0, 20, "a -b", resync)}, "broken ask 11"},
		"a resync of the past":            {at10, []*pb.WatchResponse{unit(0, 9, "a", resync)}, "behind ask 11"},
		"a resync to where we are":        {at10, []*pb.WatchResponse{unit(0, 10, "a", resync), events(11, false, "a")}, "batch@11/1 ask 12"},
		"another lineage":                 {at10, []*pb.WatchResponse{restored, progress(40), unit(0, 7, "a", resync), events(8, false, "a"), next}, "ask 11 resync@7/1 batch@8/1 ask 9 ask 9"},
		"another lineage at our revision": {at10, []*pb.WatchResponse{restored, unit(0, 10, "a", resync)}, "ask 11 resync@10/1 ask 11"},
		"another lineage, cut":            {at10, []*pb.WatchResponse{restored, unit(0, 7, "a", resync, first), lags, events(11, false, "a"), restored, unit(0, 8, "a", resync)}, "ask 11 ask 11 behind broken ask 11 resync@8/1 ask 9"},
		"another lineage by events":       {at10, []*pb.WatchResponse{restored, events(11, false, "a")}, "ask 11 broken ask 11"},
		"another lineage by delta":        {at10, []*pb.WatchResponse{restored, unit(10, 20, "a")}, "ask 11 broken ask 11"},
		"a node that lags":                {at10, []*pb.WatchResponse{restored, unit(0, 7, "a", resync), lags, unit(0, 20, "a", resync)}, "ask 11 resync@7/1 ask 8 behind broken ask 8"},

		"an unknown lineage": {assembler{positioned: true, position: 10, history: history{lineage: 9}}, []*pb.WatchResponse{unit(0, 7, "a", resync)}, "resync@7/1 ask 8"},

		"a token":                {assembler{token: []byte("t")}, []*pb.WatchResponse{next, events(11, false, "a")}, "ask token batch@11/1 ask 12"},
		"a token, then a delta":  {assembler{token: []byte("t")}, []*pb.WatchResponse{unit(10, 20, "a", first), next, unit(10, 25, "b")}, "ask token delta@10-25/1-0 ask 26"},
		"a token, then a resync": {assembler{token: []byte("t")}, []*pb.WatchResponse{unit(0, 5, "a", resync, first), next, unit(0, 6, "b", resync), events(7, false, "a")}, "ask token resync@6/1 batch@7/1 ask 8"},
		"a token for now":        {assembler{token: []byte("t")}, []*pb.WatchResponse{progress(10), progress(12)}, "progress@12 ask 13"},
		"an unknown token":       {func() assembler { a := assembler{token: []byte("t")}; a.startOver(); return a }(), []*pb.WatchResponse{state(20, true, true, "a")}, "resync@20/1 ask 21"},
	} {
		t.Run(name, func(t *testing.T) {
			var out []string
			say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
			failed := func(err error) {
				switch {
				case errors.Is(err, ErrLineage):
					say("lineage")
				case errors.Is(err, outcome.ErrBehind):
					say("behind")
				case errors.Is(err, ErrTooBig):
					say("too big")
				case err != nil:
					say("broken")
				}
			}
			a, lineage := c.a, uint64(1)
			begin := func() {
				a.begin()
				failed(a.start(&pb.Created{Revision: 10, Lineage: lineage}))
			}
			ask := func() {
				switch s := a.begin().GetStart().(type) {
				case *pb.CreateWatch_StartRevision:
					say("ask %d", s.StartRevision)
				case *pb.CreateWatch_StateFirst:
					say("ask state")
				case *pb.CreateWatch_ResumeToken:
					say("ask token")
				}
			}
			begin()
			for _, r := range c.in {
				switch r {
				case next, restored, lags:
					ask()
					switch r {
					case restored:
						lineage = 2
					case lags:
						lineage = 1
					}
					begin()
					continue
				}
				u, whole, err := a.step(&nodes.Response{WatchResponse: r})
				failed(err)
				if !whole {
					continue
				}
				switch u.Kind {
				case KindBatch:
					say("batch@%d/%d", u.Revision, len(u.Events))
				case KindState, KindResync:
					say("%v@%d/%d", u.Kind, u.Revision, len(u.KVs))
				case KindProgress:
					say("progress@%d", u.Revision)
				case KindDelta, KindConflated:
					say("%v@%d-%d/%d-%d", u.Kind, u.From, u.Revision, len(u.KVs), len(u.Deleted))
				}
			}
			ask()
			if got := strings.Join(out, " "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
