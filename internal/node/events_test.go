package node_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// sent is a server-sent event.
type sent struct {
	name, id string
	data     struct {
		Revision  int64
		Events    []jsonKey
		Keys      []jsonKey
		Deleted   []jsonKey
		End       bool
		Reason    string
		Endpoints []string
	}
}

type jsonKey struct {
	Type, Key, Value string
	KeyBase64        string   `json:"key_base64"`
	ValueBase64      string   `json:"value_base64"`
	ModRevision      int64    `json:"mod_revision"`
	Prev             *jsonKey `json:"prev"`
}

// source is an open watch as server-sent events.
type source struct {
	t     *testing.T
	lines *bufio.Scanner
}

// subscribe opens a watch, after the event with an id.
func subscribe(t *testing.T, web *http.Client, base, query, last string, header http.Header) *source {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t), http.MethodGet, base+"/v1/watch?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %s, %s", query, resp.Status, resp.Header.Get("Content-Type"))
	}
	return &source{t, bufio.NewScanner(resp.Body)}
}

// next returns the next event that is not progress.
func (s *source) next() sent {
	s.t.Helper()
	for {
		if e := s.any(); e.name != "progress" {
			return e
		}
	}
}

func (s *source) any() (e sent) {
	s.t.Helper()
	for s.lines.Scan() {
		field, text, _ := strings.Cut(s.lines.Text(), ": ")
		switch field {
		case "event":
			e.name = text
		case "id":
			e.id = text
		case "data":
			if err := json.Unmarshal([]byte(text), &e.data); err != nil {
				s.t.Fatalf("%q: %v", text, err)
			}
		case "":
			return e
		}
	}
	s.t.Fatalf("the watch has ended: %v", s.lines.Err())
	return e
}

func plainWeb() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// A watch receives the state and each change; its ids resume it at any time.
func TestEventsAreAWatch(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1, shards(2, 1))
	c.ready()
	cli, base := c.etcd.Client(), "http://"+c.nodes[0].clients
	put := func(key, value string) int64 {
		t.Helper()
		r, err := cli.Put(within(t), key, value)
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.GetRevision()
	}
	put("/app/a", "1")
	s := subscribe(t, plainWeb(), base, "prefix=/app/&state=true&prev_kv&progress=100ms", "", nil)
	if e := s.next(); e.name != "created" || e.id != "" {
		t.Errorf("begins with %+v, want created without an id: the client does not have the state", e)
	}
	state, keys := s.next(), []jsonKey(nil)
	for ; !state.data.End; state = s.next() {
		keys = append(keys, state.data.Keys...)
		if state.id != "" {
			t.Errorf("an id before the end of the state: %+v", state)
		}
	}
	if keys = append(keys, state.data.Keys...); state.name != "state" || len(keys) != 1 || keys[0].Key != "/app/a" || keys[0].Value != "1" || state.id == "" {
		t.Errorf("the state is %+v, then %+v", keys, state)
	}
	at := put("/app/a", "\xff\n")
	changed := s.next()
	if e := changed.data.Events; changed.name != "events" || changed.data.Revision != at || len(e) != 1 || e[0].Type != "PUT" ||
		e[0].ValueBase64 != base64.StdEncoding.EncodeToString([]byte("\xff\n")) || e[0].Prev.Value != "1" {
		t.Errorf("got %+v", changed)
	}
	if _, err := cli.Txn(within(t)).Then(clientv3.OpDelete("/app/a"), clientv3.OpPut("/app/\xfe", "2")).Commit(); err != nil {
		t.Fatal(err)
	}
	both := s.next()
	if e := both.data.Events; len(e) != 2 || both.data.Revision != at+1 {
		t.Errorf("a transaction arrives as %+v", both)
	}
	far := put("/other", "x")
	progress := s.any()
	for ; progress.data.Revision < far; progress = s.any() {
		if progress.name != "progress" {
			t.Fatalf("got %+v", progress)
		}
	}

	for what, id := range map[string]string{"the state": state.id, "an event": changed.id, "progress": progress.id} {
		resumed := subscribe(t, plainWeb(), base, "prefix=/app/&state=true", id, nil)
		created := resumed.next()
		if created.name != "created" || created.id == "" {
			t.Errorf("after %s: %+v", what, created)
		}
		switch what {
		case "the state":
			if e := resumed.next(); e.data.Revision != at {
				t.Errorf("resumed after the state: %+v, want revision %d", e, at)
			}
		case "an event":
			if e := resumed.next(); e.data.Revision != at+1 || e.id != both.id {
				t.Errorf("resumed after revision %d: %+v, want %+v", at, e, both)
			}
		case "progress":
			if created.data.Revision < far {
				t.Errorf("resumed after revision %d: at %d", far, created.data.Revision)
			}
		}
	}
}

// Keys are listed at one revision, in pages; a watch continues after a list.
func TestKeysAreListed(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1, shards(2, 1))
	c.ready()
	cli, base := c.etcd.Client(), "http://"+c.nodes[0].clients
	for i := range 5 {
		if _, err := cli.Put(within(t), fmt.Sprintf("/app/%d", i), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	type listed struct {
		Cluster, Token string
		Lineage        uint64
		Revision       int64
		Keys           []jsonKey
		NextPage       string `json:"next_page"`
	}
	list := func(query string) (out listed) {
		t.Helper()
		code, answer, header := ask(t, http.MethodGet, base+"/v1/keys?"+query, "", nil)
		if err := json.Unmarshal([]byte(answer), &out); code != http.StatusOK || err != nil || header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d, %v: %s", query, code, err, answer)
		}
		return out
	}
	var keys []string
	page := list("prefix=/app/&limit=2")
	if _, err := cli.Put(within(t), "/app/1x", "late"); err != nil {
		t.Fatal(err)
	}
	for first := page; ; page = list("prefix=/app/&limit=2&page=" + page.NextPage) {
		if page.Revision != first.Revision || page.Lineage != 1 || page.Cluster != first.Cluster || len(page.Keys) > 2 {
			t.Errorf("a page at %d of lineage %d with %d keys, the first is at %d", page.Revision, page.Lineage, len(page.Keys), first.Revision)
		}
		for _, k := range page.Keys {
			keys = append(keys, k.Key+"="+k.Value)
		}
		if page.NextPage == "" {
			break
		}
	}
	if got := strings.Join(keys, " "); got != "/app/0=0 /app/1=1 /app/2=2 /app/3=3 /app/4=4" {
		t.Errorf("listed %s", got)
	}
	s := subscribe(t, plainWeb(), base, "prefix=/app/&token="+page.Token, "", nil)
	s.next()
	if e := s.next(); e.data.Revision != page.Revision+1 || len(e.data.Events) != 1 || e.data.Events[0].Key != "/app/1x" {
		t.Errorf("after the list: %+v", e)
	}
	if one := list("key=/app/3&keys_only"); len(one.Keys) != 1 || one.Keys[0].Key != "/app/3" || one.Keys[0].Value != "" {
		t.Errorf("the key alone: %+v", one)
	}
	if none := list("prefix=/none/"); len(none.Keys) != 0 || none.Revision == 0 {
		t.Errorf("no keys: %+v", none)
	}
	for query, says := range map[string]string{
		"":                                  "name a prefix or a key",
		"prefix=a&key=b":                    "name a prefix or a key",
		"prefix=a&range_end=b":              "use it with key",
		"key=b&range_end=a":                 "is not after",
		"prefix=a&limit=-1":                 "not a number above 0",
		"prefix=a&keys_only=perhaps":        "neither true nor false",
		"prefix=a&page=!":                   "not the next_page",
		"prefix=/other/&page=" + page.Token: "another kind",
	} {
		if code, answer, _ := ask(t, http.MethodGet, base+"/v1/keys?"+query, "", nil); code != http.StatusBadRequest || !strings.Contains(answer, says) {
			t.Errorf("%s: %d %s, want %q", query, code, answer, says)
		}
	}
	for query, says := range map[string]string{
		"prefix=a&conflate=often":        "not a duration",
		"prefix=a&conflate=1ms":          "must lie between",
		"prefix=a&token=!":               "not the id of an event",
		"prefix=/b/&token=" + page.Token: "made for another key",
		"prefix=a&progress=1ns":          "must lie between",
	} {
		if code, answer, _ := ask(t, http.MethodGet, base+"/v1/watch?"+query, "", nil); code != http.StatusBadRequest || !strings.Contains(answer, says) {
			t.Errorf("%s: %d %s, want %q", query, code, answer, says)
		}
	}
	if code, _, header := ask(t, http.MethodPost, base+"/v1/keys?prefix=a", "", nil); code != http.StatusMethodNotAllowed || header.Get("Allow") != "GET" {
		t.Errorf("POST: %d, Allow %q", code, header.Get("Allow"))
	}
}

// The policy applies to events and lists: rights, the number of watches, and watches
// that are open when the policy changes.
func TestEventsObeyThePolicy(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, policyHead+webMay)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: p.tls(who{}), DisableKeepAlives: true}}
	base := "https://" + p.nodes[0].clients
	bearer := http.Header{"Authorization": {"Bearer " + p.token("web", time.Hour)}}
	get := func(path string, header http.Header) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(within(t), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header.Clone()
		resp, err := web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		line, _ := bufio.NewReader(resp.Body).ReadString('\n')
		return resp.StatusCode, line
	}
	for _, c := range []struct {
		path   string
		header http.Header
		code   int
		says   string
	}{
		{"/v1/keys?prefix=/web/", bearer, http.StatusOK, "revision"},
		{"/v1/keys?prefix=/", bearer, http.StatusForbidden, "the policy does not let sub:web read"},
		{"/v1/keys?prefix=/web/", http.Header{}, http.StatusForbidden, "the policy does not let anonymous read"},
		{"/v1/watch?prefix=/web/", http.Header{}, http.StatusForbidden, "the policy does not let anonymous watch"},
		{"/v1/watch?prefix=/", bearer, http.StatusForbidden, "the policy does not let sub:web watch"},
		{"/v1/watch?prefix=/web/", http.Header{"Authorization": {"Bearer " + p.token("web", -time.Hour)}}, http.StatusUnauthorized, "has expired"},
	} {
		if code, line := get(c.path, c.header); code != c.code || !strings.Contains(line, c.says) {
			t.Errorf("%s: %d %s, want %d, %q", c.path, code, line, c.code, c.says)
		}
	}
	var open []*source
	for range 3 {
		open = append(open, subscribe(t, web, base, "prefix=/web/", "", bearer))
	}
	if code, line := get("/v1/watch?prefix=/web/", bearer); code != http.StatusTooManyRequests || !strings.Contains(line, "watches") {
		t.Errorf("a fourth watch: %d %s", code, line)
	}
	p.write(t, strings.ReplaceAll(policyHead+webMay, "prefixes: [/web/]", "prefixes: [/none/]"))
	if err := p.nodes[0].node.ReloadPolicy(); err != nil {
		t.Fatal(err)
	}
	for _, s := range open {
		s.next() // created
		if e := s.next(); e.name != "end" || e.data.Reason != "DENIED" {
			t.Errorf("a watch whose right was revoked: %+v", e)
		}
	}
}

// With etcd's authentication on, events and lists need a user's token and rights.
func TestEventsObeyEtcdsRights(t *testing.T) {
	t.Parallel()
	c, root := startGuarded(t, 1)
	etcdtest.Permit(t, root, "ann", "/ann/", "/ann0")
	base := "http://" + c.nodes[0].clients
	code, answer, _ := ask(t, http.MethodPost, base+"/v3/auth/authenticate", fmt.Sprintf(`{"name":"ann","password":%q}`, etcdtest.Password), nil)
	var login struct{ Token string }
	if err := json.Unmarshal([]byte(answer), &login); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	ann := http.Header{"Authorization": {login.Token}}
	testkit.Succeeds(t, "the node allows the read", func() error {
		if code, answer, _ := ask(t, http.MethodGet, base+"/v1/keys?prefix=/ann/", "", ann); code != http.StatusOK {
			return errors.New(answer)
		}
		return nil
	})
	for path, want := range map[string]int{"/v1/keys?prefix=/ann/": http.StatusOK, "/v1/keys?prefix=/": http.StatusForbidden, "/v1/watch?prefix=/": http.StatusForbidden} {
		if code, answer, _ := ask(t, http.MethodGet, base+path, "", ann); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, answer, want)
		}
	}
	if code, answer, _ := ask(t, http.MethodGet, base+"/v1/keys?prefix=/ann/", "", nil); code != http.StatusUnauthorized && code != http.StatusBadRequest {
		t.Errorf("without a token: %d %s", code, answer)
	}
	s := subscribe(t, plainWeb(), base, "prefix=/ann/", "", ann)
	s.next()
	if _, err := root.Put(within(t), "/ann/1", "x"); err != nil {
		t.Fatal(err)
	}
	if e := s.next(); len(e.data.Events) != 1 || e.data.Events[0].Value != "x" {
		t.Errorf("got %+v", e)
	}
}

// A node that drains ends its event streams, naming others, so that the client resumes there.
func TestEventsOfADrainedNodeResumeOnAnotherNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, 1, shards(1, 2))
	c.ready()
	s := subscribe(t, plainWeb(), "http://"+c.nodes[1].clients, "prefix=/app/", "", nil)
	last := s.next().id
	c.nodes[1].stop()
	end := s.next()
	if end.name != "end" || end.data.Reason != "DRAINING" || len(end.data.Endpoints) != 1 {
		t.Fatalf("got %+v, want an end with another endpoint", end)
	}
	if _, err := c.etcd.Client().Put(within(t), "/app/1", "x"); err != nil {
		t.Fatal(err)
	}
	there := (&url.URL{Scheme: "http", Host: end.data.Endpoints[0]}).String()
	next := subscribe(t, plainWeb(), there, "prefix=/app/", last, nil)
	next.next()
	if e := next.next(); len(e.data.Events) != 1 || e.data.Events[0].Key != "/app/1" {
		t.Errorf("got %+v", e)
	}
}
