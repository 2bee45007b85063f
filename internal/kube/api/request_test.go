package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
)

func get(path, accept string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	return r
}

func TestRequestsThatCachesAnswer(t *testing.T) {
	chunk := continueAt(7, []byte("/k"))
	for path, want := range map[string]string{
		"/api/v1/pods":                                  "v1.pods.",
		"/api/v1/namespaces/a/pods?limit=5":             "v1.pods. ns=a limit=5 unset",
		"/api/v1/namespaces/a/pods/b?resourceVersion=0": "v1.pods. ns=a name=b",
		"/api/v1/namespaces":                            "v1.namespaces.",
		"/api/v1/namespaces/a":                          "v1.namespaces. name=a",
		"/api/v1/nodes/n":                               "v1.nodes. name=n",
		"/apis/apps/v1/namespaces/a/deployments":        "v1.deployments.apps ns=a",
		"/apis/apps/v1/deployments?watch=1&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=9&timeout=1m3s": "v1.deployments.apps watch 5",
		"/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact&limit=2":                                          "v1.pods. exact 5 limit=2",
		"/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan":                           "v1.pods. watch initial unset",
		"/api/v1/pods?continue=" + chunk: "v1.pods. 7 from /k",
	} {
		q, ok := parse(get(path, ""))
		if !ok {
			t.Errorf("%s is for an apiserver", path)
			continue
		}
		got := fmt.Sprintf("%s.%s.%s", q.resource.Version, q.resource.Name, q.resource.Group)
		for _, part := range []struct {
			is   bool
			text string
		}{
			{q.namespace != "", " ns=" + q.namespace},
			{q.name != "", " name=" + q.name},
			{q.watch, " watch"},
			{q.initialEvents, " initial"},
			{q.exact, " exact"},
			{q.version > 0, fmt.Sprintf(" %d", q.version)},
			{q.next != "", " from " + q.next},
			{q.limit > 0, fmt.Sprintf(" limit=%d", q.limit)},
			{q.unset && (q.limit > 0 || q.watch), " unset"},
		} {
			if part.is {
				got += part.text
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestRequestsForAnApiserver(t *testing.T) {
	for _, path := range []string{
		"/", "/api", "/api/v1", "/apis/apps/v1", "/healthz", "/openapi/v3", "/api/v1/watch/pods", "/api/v1/namespaces/a/pods/b/log", "/api/v1/namespaces/a/status",
		"/api/v1/namespaces/a/pods/b/status", "/api/v1//pods", "/api/v1/pods?x=1", "/api/v1/pods?watch=x", "/api/v1/pods?limit=-1", "/api/v1/pods?resourceVersion=a",
		"/api/v1/pods?resourceVersion=5&limit=2", "/api/v1/pods?resourceVersionMatch=Exact", "/api/v1/pods?resourceVersionMatch=Maybe&resourceVersion=1", "/api/v1/pods?continue=abc",
		"/api/v1/pods?watch=1&sendInitialEvents=true", "/api/v1/pods?labelSelector=a=b=c", "/api/v1/pods?limit=1&limit=2", "/api/v1/pods?watch=1&resourceVersionMatch=Exact&resourceVersion=4",
		"/api/v1/pods/a?watch=1",
	} {
		if q, ok := parse(get(path, "")); ok {
			t.Errorf("%s: %+v", path, q)
		}
	}
	post := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/a/pods", strings.NewReader("{}"))
	upgraded := func(path, accept, protocol string) *http.Request {
		r := get(path, accept)
		r.Header.Set("Upgrade", protocol)
		return r
	}
	const watch = "/api/v1/pods?watch=1"
	named := upgraded(watch, "", "websocket")
	named.Header.Set("Sec-Websocket-Protocol", "base64.binary.k8s.io")
	shared := upgraded(watch, "", "websocket")
	shared.ProtoMajor = 2
	for _, r := range []*http.Request{
		upgraded("/api/v1/pods", "", "websocket"), upgraded(watch, "", "SPDY/3.1"), upgraded(watch, object.Protobuf.MediaType(), "websocket"), named, shared,
	} {
		if q, ok := parse(r); ok {
			t.Errorf("%v: %+v", r.Header, q)
		}
	}
	if q, ok := parse(upgraded(watch, "", "WebSocket")); !ok || !q.socket {
		t.Errorf("a watch over a WebSocket is for an apiserver: %+v", q)
	}
	for _, r := range []*http.Request{post, get("/api/v1/pods", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"), get("/api/v1/pods", "application/cbor")} {
		if q, ok := parse(r); ok {
			t.Errorf("%s %v: %+v", r.Method, r.Header, q)
		}
	}
}

func TestTheFirstAcceptedFormsCount(t *testing.T) {
	for accept, want := range map[string][]form{
		"":    {{enc: object.JSON}},
		"*/*": {{enc: object.JSON}},
		"application/vnd.kubernetes.protobuf, */*": {{enc: object.Protobuf}, {enc: object.JSON}},
		"application/json;stream=watch":            {{enc: object.JSON}},
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,text/plain": {{enc: object.Protobuf, partial: true}},
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1":                          nil,
		"application/yaml,application/json":                                                          nil,
	} {
		if got := accepted([]string{accept}, false); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}

func TestMetadataOfListsHasAFormOfItsOwn(t *testing.T) {
	const one, list = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for _, c := range []struct {
		path, accept string
		ok           bool
	}{
		{"/api/v1/pods", list, true},
		{"/api/v1/pods", one, false},
		{"/api/v1/pods?watch=1", one, true},
		{"/api/v1/pods?watch=1", list, false},
		{"/api/v1/namespaces/a/pods/b?resourceVersion=0", one, true},
		{"/api/v1/namespaces/a/pods/b?resourceVersion=0", list, false},
	} {
		q, ok := parse(get(c.path, c.accept))
		if ok != c.ok || ok && !q.forms[0].partial {
			t.Errorf("%s, %s: %+v, %v", c.path, c.accept, q, ok)
		}
	}
}

func old(key string, from kv.Revision, value string) *kv.KeyValue {
	return kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: []byte(value), ModRevision: from})
}

func TestThePastOfAnObject(t *testing.T) {
	p := newPast(1 << 20)
	p.gap(10, 20, []*kv.KeyValue{old("a", 4, "a4"), old("b", 9, "b9")})
	p.applied(&kv.Batch{Revision: 30, Events: []kv.Event{
		{Type: kv.Delete, KV: old("a", 30, "a30"), Prev: old("a", 25, "a25")}, {Type: kv.Put, KV: old("c", 30, "c30")},
	}})
	for _, c := range []struct {
		key   string
		at    kv.Revision
		want  string
		known bool
	}{
		{"a", 4, "a4", true},
		{"a", 19, "a4", true},
		{"a", 3, "", false},  // older than what was held
		{"a", 20, "", false}, // created again meanwhile
		{"a", 25, "a30", true},
		{"a", 30, "", false},
		{"b", 9, "b9", true},
		{"c", 10, "", true}, // all that existed at the gap is known
		{"c", 11, "", false},
	} {
		if got, known := p.at(c.key, c.at); string(got) != c.want || known != c.known {
			t.Errorf("%s at %d: %q, %v; want %q, %v", c.key, c.at, got, known, c.want, c.known)
		}
	}
	if got := p.last("a"); string(got) != "a30" {
		t.Errorf("the last version of a is %q", got)
	}
	if got := p.last("c"); got != nil {
		t.Errorf("c was not deleted, and its last version is %q", got)
	}
}

// Objects that a gap did not touch change after it. A watch from the gap's beginning must
// be told that one of them does not match its selector any more, or is gone.
func TestThePastOfAnObjectThatChangesAfterAGap(t *testing.T) {
	p := newPast(1 << 20)
	p.gap(10, 20, nil)
	put := func(at kv.Revision, key string, prev *kv.KeyValue) {
		p.applied(&kv.Batch{Revision: at, Events: []kv.Event{{Type: kv.Put, KV: old(key, at, "new"), Prev: prev}}})
	}
	put(30, "a", old("a", 10, "a10"))
	put(40, "a", old("a", 30, "a30"))
	p.applied(&kv.Batch{Revision: 50, Events: []kv.Event{{Type: kv.Delete, KV: old("a", 50, "a40"), Prev: old("a", 40, "a40")}}})
	put(60, "b", nil)
	put(70, "b", old("b", 60, "b60"))
	if got, known := p.at("a", 10); string(got) != "a10" || !known {
		t.Errorf("a at 10: %q, %v; want a10, known", got, known)
	}
	if got, known := p.at("b", 10); got != nil || !known {
		t.Errorf("b at 10: %q, %v; want none, known", got, known)
	}
	if len(p.order) != 2 { // the first version of a and the last
		t.Errorf("%d versions are kept: %v", len(p.order), p.order)
	}
}

func TestThePastHasABound(t *testing.T) {
	p := newPast(2000)
	p.gap(1, 2, []*kv.KeyValue{old("a", 1, "a1")})
	if _, known := p.at("x", 1); !known {
		t.Error("the gap is not known")
	}
	for at := kv.Revision(3); at < 100; at++ {
		p.applied(&kv.Batch{Revision: at, Events: []kv.Event{{Type: kv.Delete, KV: old(fmt.Sprint("k", at%30), at, "value"), Prev: old("", at-1, "")}}})
	}
	if p.bytes > p.maxBytes || p.bytes <= 0 || len(p.order) == 0 || len(p.byKey) > len(p.order) {
		t.Errorf("%d bytes in %d versions of %d keys", p.bytes, len(p.order), len(p.byKey))
	}
	if got := p.last("k9"); string(got) != "value" {
		t.Errorf("the newest version is gone: %q", got)
	}
	if _, known := p.at("a", 1); known {
		t.Error("a dropped entry is still known")
	}
	for gap := range kv.Revision(3 * maxGaps) {
		p.gap(200+gap, 201+gap, nil)
	}
	if len(p.gaps) > maxGaps {
		t.Errorf("%d gaps", len(p.gaps))
	}
}

func TestConfigIsValidated(t *testing.T) {
	cfg := Defaults()
	cfg.MaxFeeds = 0
	for _, want := range []string{"Source, Guard, Upstream and Budget", "MaxFeeds"} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}

func TestAttributesAreAnApiservers(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods":                                                 "list /v1/pods  ",
		"/api/v1/namespaces/a/pods?watch=1":                            "watch /v1/pods a ",
		"/api/v1/namespaces/a/pods/b?resourceVersion=0":                "get /v1/pods a b",
		"/api/v1/namespaces/a":                                         "get /v1/namespaces a a",
		"/api/v1/namespaces":                                           "list /v1/namespaces  ",
		"/apis/apps/v1/namespaces/a/deployments":                       "list apps/v1/deployments a ",
		"/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dn":        "watch /v1/nodes  n metadata.name=n",
		"/api/v1/nodes?fieldSelector=metadata.name!%3Dn":               "list /v1/nodes   metadata.name!=n",
		"/api/v1/pods?fieldSelector=spec.nodeName%3Dn&labelSelector=a": "list /v1/pods   spec.nodeName=n a",
	} {
		q, ok := parse(get(path, ""))
		if !ok {
			t.Errorf("%s is for an apiserver", path)
			continue
		}
		a := q.attributes()
		got := fmt.Sprintf("%s %s/%s/%s %s %s %s %s", a.Verb, a.Group, a.Version, a.Resource, a.Namespace, a.Name, a.FieldSelector, a.LabelSelector)
		if strings.TrimRight(got, " ") != strings.TrimRight(want, " ") {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
