package statuspage

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	alive   = shardwatchv1.MemberState_MEMBER_STATE_ALIVE
	suspect = shardwatchv1.MemberState_MEMBER_STATE_SUSPECT
	dead    = shardwatchv1.MemberState_MEMBER_STATE_DEAD
	left    = shardwatchv1.MemberState_MEMBER_STATE_LEFT
)

// world is a simulated cluster. Its methods may be called from any goroutine.
type world struct {
	mu      sync.Mutex
	shards  *shard.Map
	members []*shardwatchv1.Member
	status  map[string]*shardwatchv1.StatusResponse
	changed chan struct{}
	asked   int
}

// newWorld returns three healthy nodes with n shards each, owned in turn.
func newWorld(n int) *world {
	w := &world{status: make(map[string]*shardwatchv1.StatusResponse), changed: make(chan struct{})}
	nodes := []string{"a", "b", "c"}
	w.shards = &shard.Map{ClusterID: "c1", Lineage: 1, Version: 7, Spec: shard.Spec{Replicas: 3}}
	for i, name := range nodes {
		w.members = append(w.members, &shardwatchv1.Member{Name: name, Uuid: name, State: alive, HttpAddress: name + ":7480", Voter: true, Leader: i == 0})
		w.status[name] = &shardwatchv1.StatusResponse{EtcdRevision: 100, EtcdAge: durationpb.New(time.Second / 4), Watches: 10}
	}
	for i := range n {
		s := shard.Shard{ID: shard.ID(i + 1), Epoch: 1}
		if i > 0 {
			s.Range.Start = cut(i)
			w.shards.Shards[i-1].Range.End = cut(i)
		}
		for k := range nodes {
			name := nodes[(i+k)%len(nodes)]
			s.Replicas = append(s.Replicas, shard.NodeID(name))
			r := &shardwatchv1.ReplicaStatus{
				ShardId: uint64(s.ID), Node: name, Ready: true, Progress: 100, Age: durationpb.New(time.Second / 2), WindowSpan: durationpb.New(time.Minute),
				Keys: 5, StateBytes: 1000, Watchers: 2, Source: shardwatchv1.ReplicaSource_REPLICA_SOURCE_PEER, SourceNode: string(s.Replicas[0]),
			}
			if k == 0 {
				r.Source, r.SourceNode = shardwatchv1.ReplicaSource_REPLICA_SOURCE_ETCD, ""
			}
			w.status[name].Replicas = append(w.status[name].Replicas, r)
		}
		w.shards.Shards = append(w.shards.Shards, s)
	}
	return w
}

func cut(i int) string {
	return "/k/" + string(rune('a'+i/676%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
}

func (w *world) Map() *shard.Map { w.mu.Lock(); defer w.mu.Unlock(); return w.shards }
func (w *world) Members() []*shardwatchv1.Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.members
}
func (w *world) Changes() <-chan struct{} { w.mu.Lock(); defer w.mu.Unlock(); return w.changed }
func (w *world) Status() *shardwatchv1.StatusResponse {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status["a"]
}

func (w *world) StatusOf(_ context.Context, node shard.NodeID) (*shardwatchv1.StatusResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if s := w.status[string(node)]; s != nil {
		return s, nil
	}
	return nil, errors.New("connection refused")
}

// change changes the world and notifies the page.
func (w *world) change(f func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) member(name string, change func(*shardwatchv1.Member)) {
	for i, m := range w.members {
		if m.GetName() == name {
			m = &shardwatchv1.Member{Name: m.GetName(), Uuid: m.GetUuid(), State: m.GetState(), HttpAddress: m.GetHttpAddress(), Voter: m.GetVoter(), Leader: m.GetLeader()}
			change(m)
			w.members = append(append(w.members[:i:i], m), w.members[i+1:]...)
		}
	}
}

// kill makes a node dead in gossip.
func (w *world) kill(name string) {
	delete(w.status, name)
	w.member(name, func(m *shardwatchv1.Member) { m.State = dead })
}

func (w *world) observed() *observed {
	o := &observed{self: "a", at: time.Unix(1_700_000_000, 0), shards: w.shards, members: w.members, status: make(map[string]*shardwatchv1.StatusResponse), silent: make(map[string]string)}
	for _, m := range w.members {
		if s := w.status[m.GetName()]; s != nil {
			o.status[m.GetName()] = s
		} else {
			o.silent[m.GetName()] = "it cannot be reached"
		}
	}
	return o
}

// served runs a page over the world on a real socket until the test ends.
func served(t *testing.T, w *world, keys bool) string {
	t.Helper()
	p := New(Config{Cluster: w, Self: "a", ShowKeys: func() bool { return keys }})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	mux := http.NewServeMux()
	p.Register(mux)
	s := httptest.NewUnstartedServer(mux)
	s.Config.ReadTimeout = 300 * time.Millisecond // as short as a stream must outlive
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	return s.URL
}

func get(t *testing.T, url string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Transport{DisableKeepAlives: true, DisableCompression: true}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// views reads views off a stream.
func views(t *testing.T, r io.Reader) func(ok func(*View) bool) *View {
	t.Helper()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	return func(ok func(*View) bool) *View {
		t.Helper()
		for lines.Scan() {
			data, is := strings.CutPrefix(lines.Text(), "data: ")
			if !is {
				continue
			}
			v := &View{}
			if err := json.Unmarshal([]byte(data), v); err != nil {
				t.Fatal(err)
			}
			if ok(v) {
				return v
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return nil
	}
}

func TestThePageIsSelfContained(t *testing.T) {
	url := served(t, newWorld(4), true)
	resp := get(t, url+"/")
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Content-Security-Policy": policy,
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Error("the content security policy allows unsafe sources")
	}
	for _, bad := range []string{"<style", " style=", "onclick", "<script>", "http://", "https://"} {
		if strings.Contains(string(body), bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	files := regexp.MustCompile(`(?:href|src)="(/status/[^"]+)"`).FindAllStringSubmatch(string(body), -1)
	if len(files) < 3 {
		t.Fatalf("the page links too few files: %v", files)
	}
	for _, f := range files {
		resp := get(t, url+f[1])
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") == "" {
			t.Errorf("%s: %s %v", f[1], resp.Status, err)
		}
		if m := regexp.MustCompile(`https?://[^w]`).FindString(strings.ReplaceAll(string(text), "${location.protocol}//", "")); m != "" {
			t.Errorf("%s refers to another site: %s", f[1], m)
		}
		if again := get(t, url+f[1], "If-None-Match", resp.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s is sent again despite its ETag: %s", f[1], again.Status)
		}
	}
	if resp := get(t, url+"/elsewhere"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("/elsewhere: %s", resp.Status)
	}
}

func TestTheStreamReportsChanges(t *testing.T) {
	w := newWorld(4)
	url := served(t, w, true)
	resp := get(t, url+"/status/stream")
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("Content-Type %q", got)
	}
	next := views(t, resp.Body)
	v := next(func(*View) bool { return true })
	if v.Level != OK || v.Self != "a" || len(v.Groups) != 4 || v.Totals.Copies != 12 {
		t.Fatalf("%+v", v)
	}
	w.change(func(w *world) { w.kill("b") })
	v = next(func(v *View) bool { return v.Level != OK })
	if !strings.Contains(v.Verdict, "b does not answer") {
		t.Errorf("verdict %q", v.Verdict)
	}
	if len(v.News) == 0 || !strings.Contains(v.News[len(v.News)-1].Text, "b is dead") {
		t.Errorf("news %+v", v.News)
	}
	// A stream outlives the server's timeouts, and continues without changes.
	w.mu.Lock()
	asked := w.asked
	w.mu.Unlock()
	next(func(*View) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.asked >= asked+2
	})
}

func TestTheStreamIsCompressed(t *testing.T) {
	url := served(t, newWorld(40), true)
	resp := get(t, url+"/status/stream", "Accept-Encoding", "gzip, br")
	if got := resp.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("Content-Encoding %q", got)
	}
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if v := views(t, z)(func(*View) bool { return true }); len(v.Groups) != 40 {
		t.Errorf("%d groups", len(v.Groups))
	}
}

// Keys are shown only if the page may show them: a viewer need not have the right to read keys.
func TestKeysAreShownOnlyIfPermitted(t *testing.T) {
	for _, keys := range []bool{true, false} {
		body, err := io.ReadAll(get(t, served(t, newWorld(4), keys)+"/status.json").Body)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(body), cut(1)); got != keys {
			t.Errorf("keys allowed: %v, shown: %v", keys, got)
		}
	}
}

func TestNoNodeIsAskedWithoutViewers(t *testing.T) {
	w := newWorld(4)
	p := New(Config{Cluster: w, Self: "a"})
	p.observe(t.Context())
	w.change(func(w *world) { w.kill("b") })
	p.observe(t.Context())
	if w.asked != 0 {
		t.Errorf("%d questions", w.asked)
	}
	if len(p.news) != 1 || p.news[0].Text != "b is dead: it stopped without leaving the cluster." {
		t.Errorf("news for a later browser: %v", p.news)
	}
}

func TestViewersAreBounded(t *testing.T) {
	p := New(Config{Cluster: newWorld(1), Self: "a"})
	for range MaxViewers {
		if !p.enter() {
			t.Fatal("refused below the bound")
		}
	}
	mux := http.NewServeMux()
	p.Register(mux)
	for _, path := range []string{"/status/stream", "/status.json"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	p.leave()
	if !p.enter() {
		t.Error("refused below the bound after a viewer has left")
	}
}

func TestManyShardsAreGroups(t *testing.T) {
	w := newWorld(5000)
	v := w.observed().view(true)
	if len(v.Groups) > maxGroups || v.Totals.Shards != 5000 || v.Totals.Copies != 15000 {
		t.Fatalf("%d groups, %+v", len(v.Groups), v.Totals)
	}
	n, to := 0, ""
	for _, g := range v.Groups {
		n += g.Count
		if *g.From != to {
			t.Fatalf("group of shard %d begins at %q, the previous group ends at %q", g.First, *g.From, to)
		}
		to = *g.To
		if len(g.Copies) != 3 {
			t.Fatalf("%d nodes have the group of shard %d", len(g.Copies), g.First)
		}
	}
	b, err := json.Marshal(v)
	if n != 5000 || err != nil || len(b) > 1<<20 {
		t.Errorf("%d shards in %d bytes: %v", n, len(b), err)
	}
}

// The page shows the weights of nodes and an upgrade that is not finalized.
func TestLevelsAndWeightsAreShown(t *testing.T) {
	w := newWorld(4)
	w.member("b", func(m *shardwatchv1.Member) { m.FeatureLevel, m.Weight = shard.Level, 4 })
	v := w.observed().view(false)
	if v.FeatureLevel != shard.LevelWatches || v.Nodes[1].FeatureLevel != shard.Level || v.Nodes[1].Weight != 4 {
		t.Errorf("level %d, node %+v", v.FeatureLevel, v.Nodes[1])
	}
	if v.Nodes[0].Weight != 1 { // the weight of nodes that do not report it
		t.Errorf("node %+v", v.Nodes[0])
	}
	w.shards.Finalized = shard.Level
	if v := w.observed().view(false); v.FeatureLevel != shard.Level {
		t.Errorf("level %d after finalize", v.FeatureLevel)
	}
}

func TestStates(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*world)
		level   Level
		state   State // of the first shard
		verdict string
	}{
		"fine": {func(*world) {}, OK, Fine, "All is well: 2 shards on 3 nodes, 3 copies of each."},
		"the owner is dead, another reads etcd": {func(w *world) {
			w.kill("a")
			w.status["b"].Replicas[0].Source = shardwatchv1.ReplicaSource_REPLICA_SOURCE_ETCD
		}, Warn, TakenOver, "a does not answer. 1 shard is read from etcd by a replica in the owner's place. 4 of 6 copies serve."},
		"a replica is dead":      {func(w *world) { w.kill("c") }, Warn, Thin, "c does not answer. 4 of 6 copies serve."},
		"all but one are dead":   {func(w *world) { w.kill("a"); w.kill("c") }, Warn, Thin, "a and c do not answer. 2 of 6 copies serve."},
		"no node has it":         {func(w *world) { w.kill("a"); w.kill("b"); w.kill("c") }, Bad, Down, "2 shards are served by no node. etcd does not answer. a, b and c do not answer. 0 of 6 copies serve."},
		"one has left":           {func(w *world) { w.member("c", func(m *shardwatchv1.Member) { m.State = left }); delete(w.status, "c") }, Warn, Thin, "4 of 6 copies serve."},
		"etcd is unavailable":    {func(w *world) { w.age(30 * time.Second) }, Bad, Stale, "etcd has not answered for 30s: the served data is that old."},
		"one node is cut off":    {func(w *world) { w.status["c"].Replicas[0].Age = durationpb.New(time.Minute) }, Warn, Thin, "c has shards older than 5s."},
		"a copy is being loaded": {func(w *world) { w.status["c"].Replicas[0].Ready = false }, Warn, Thin, "5 of 6 copies serve."},
		"a copy is wrong":        {func(w *world) { w.status["c"].Replicas[0].Ready, w.status["c"].Replicas[0].Quarantined = false, true }, Warn, Thin, "5 of 6 copies serve."},
		"a node waits":           {func(w *world) { w.status["c"].NotReady = []string{"2 of 2 shards are still being loaded"} }, Warn, Fine, "c: 2 of 2 shards are still being loaded."},
		"a node refuses":         {func(w *world) { w.status["c"].Refusal = "etcd has a different history" }, Bad, Fine, "c: etcd has a different history."},
		"there is no map":        {func(w *world) { w.shards = nil }, Bad, "", "There is no shard map yet: the cluster is being founded, or this node reaches no other."},
		"the map knows more":     {func(w *world) { w.status["c"].Replicas = nil }, Warn, Thin, "4 of 6 copies serve."},
		"a relay is not a copy": {func(w *world) {
			w.shards.Shards[0].Replicas = []shard.NodeID{"a", "b"}
			w.status["c"].Replicas[0].Relay = true
		}, OK, Fine, ""},
		"a node gossip has not seen": {func(w *world) { w.shards.Shards[0].Replicas[2] = "z" }, OK, Fine, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2)
			c.change(w)
			v := w.observed().view(true)
			if v.Level != c.level || c.verdict != "" && v.Verdict != c.verdict {
				t.Errorf("%s: %q, want %s: %q", v.Level, v.Verdict, c.level, c.verdict)
			}
			if c.state != "" && v.Groups[0].State != c.state {
				t.Errorf("shard 1 is %q, want %q", v.Groups[0].State, c.state)
			}
		})
	}
}

// age sets the age of all data of all nodes.
func (w *world) age(d time.Duration) {
	for _, s := range w.status {
		s.EtcdAge = durationpb.New(d)
		for _, r := range s.GetReplicas() {
			r.Age = durationpb.New(d)
		}
	}
}

func TestNews(t *testing.T) {
	etcd := shardwatchv1.ReplicaSource_REPLICA_SOURCE_ETCD
	for name, c := range map[string]struct {
		change func(*world)
		want   []string
	}{
		"nothing": {func(*world) {}, nil},
		"a node dies": {func(w *world) { w.kill("b") }, []string{
			"b is dead: it stopped without leaving the cluster.", "b does not answer: it cannot be reached.",
		}},
		"a node is suspected": {func(w *world) { w.member("b", func(m *shardwatchv1.Member) { m.State = suspect }) }, []string{"b is suspected: it does not answer gossip."}},
		"another leads": {func(w *world) {
			w.member("a", func(m *shardwatchv1.Member) { m.Leader = false })
			w.member("b", func(m *shardwatchv1.Member) { m.Leader = true })
		}, []string{"b leads the voters."}},
		"a node drains":          {func(w *world) { w.member("b", func(m *shardwatchv1.Member) { m.Draining = true }) }, []string{"b drains."}},
		"a node lost its disk":   {func(w *world) { w.member("b", func(m *shardwatchv1.Member) { m.Uuid = "new" }) }, []string{"b is back with another data directory."}},
		"a replica takes over":   {func(w *world) { w.status["b"].Replicas[0].Source, w.status["b"].Replicas[3].Source = etcd, etcd }, []string{"b takes 2 shards over from a: it reads etcd itself."}},
		"an owner of two shards": {func(w *world) { w.own(0, "b"); w.own(3, "b") }, []string{"b owns 2 shards of a."}},
		"a copy moves": {func(w *world) { w.edit(func(m *shard.Map) { m.Shards[0].Replicas = []shard.NodeID{"a", "b", "d"} }) }, []string{
			"d receives a copy of 1 shard.", "c gives up a copy of 1 shard.",
		}},
		"a split": {func(w *world) {
			w.edit(func(m *shard.Map) {
				m.Shards = append(m.Shards[1:], shard.Shard{ID: 90, Replicas: m.Shards[0].Replicas}, shard.Shard{ID: 91, Replicas: m.Shards[0].Replicas})
			})
		}, []string{"Split: shard 1 became shards 90, 91."}},
		"a merge": {func(w *world) {
			w.edit(func(m *shard.Map) {
				m.Shards = append(m.Shards[2:], shard.Shard{ID: 90, Replicas: m.Shards[0].Replicas})
			})
		}, []string{"Merged: shards 1, 2 became shard 90."}},
		"etcd was restored": {func(w *world) {
			w.edit(func(m *shard.Map) {
				m.Lineage, m.Origin = 2, &shard.Origin{Cause: kv.CauseRevision, Reason: "its revision went back"}
			})
		}, []string{"Lineage 2 has begun: its revision went back. All shards are reloaded."}},
		"a copy is wrong":             {func(w *world) { w.status["b"].Replicas[1].Quarantined = true }, []string{"b has a wrong copy of 1 shard: it is reloaded, and other nodes serve it."}},
		"etcd is unavailable for one": {func(w *world) { w.status["b"] = &shardwatchv1.StatusResponse{EtcdAge: durationpb.New(time.Minute)} }, []string{"etcd does not answer b."}},
	} {
		t.Run(name, func(t *testing.T) {
			before, w := newWorld(6).observed(), newWorld(6)
			c.change(w)
			var got []string
			for _, e := range news(before, w.observed()) {
				got = append(got, e.Text)
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// edit makes a new version of the map.
func (w *world) edit(f func(*shard.Map)) {
	m := *w.shards
	m.Shards = append([]shard.Shard(nil), m.Shards...)
	m.Version++
	f(&m)
	w.shards = &m
}

// own makes a node the owner of a shard of which it has a copy.
func (w *world) own(i int, name shard.NodeID) {
	w.edit(func(m *shard.Map) {
		out := []shard.NodeID{name}
		for _, r := range m.Shards[i].Replicas {
			if r != name {
				out = append(out, r)
			}
		}
		m.Shards[i].Replicas = out
	})
}

func TestNewsAreBounded(t *testing.T) {
	w := newWorld(1)
	p := New(Config{Cluster: w, Self: "a"})
	for i := range 3 * maxNews {
		w.change(func(w *world) {
			w.member("b", func(m *shardwatchv1.Member) { m.State = []shardwatchv1.MemberState{alive, suspect}[i%2] })
		})
		p.observe(t.Context())
	}
	if len(p.news) != maxNews || p.news[0].ID <= p.news[1].ID {
		t.Errorf("%d events, the newest two are %d and %d", len(p.news), p.news[0].ID, p.news[1].ID)
	}
}
