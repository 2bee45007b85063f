package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kube/object"
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
		"/api/v1/namespaces/a?resourceVersion=0":        "v1.namespaces. name=a",
		"/api/v1/nodes/n?resourceVersion=0":             "v1.nodes. name=n",
		"/apis/apps/v1/namespaces/a/deployments":        "v1.deployments.apps ns=a",
		"/apis/apps/v1/deployments?watch=1&resourceVersion=5&allowWatchBookmarks=true&timeoutSeconds=9&timeout=1m3s": "v1.deployments.apps watch 5",
		"/api/v1/pods?resourceVersion=5&resourceVersionMatch=Exact&limit=2":                                          "v1.pods. exact 5 limit=2",
		"/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan":                           "v1.pods. watch initial unset",
		"/api/v1/pods?continue=" + chunk: "v1.pods. 7 from /k",
	} {
		q, ok := parse(get(path, ""))
		if !ok {
			t.Errorf("%s is forwarded to an apiserver, want it served here", path)
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
		"/api/v1/pods/a?watch=1", "/api/v1/namespaces/a/pods/b", "/api/v1/nodes/n?continue=" + continueAt(-1, nil), "/api/v1/namespaces/a/pods/b?resourceVersion=0&labelSelector=c", "/api/v1/namespaces/a/pods/b?resourceVersion=0&fieldSelector=spec.nodeName%3Dn",
	} {
		if q, ok := parse(get(path, "")); ok {
			t.Errorf("%s is served here, want it forwarded: %+v", path, q)
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
			t.Errorf("headers %v are served here, want them forwarded: %+v", r.Header, q)
		}
	}
	if q, ok := parse(upgraded(watch, "", "WebSocket")); !ok || !q.socket {
		t.Errorf("a watch over a WebSocket is forwarded, want it served here: %+v", q)
	}
	for _, r := range []*http.Request{post, get("/api/v1/pods", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"), get("/api/v1/pods", "application/cbor")} {
		if q, ok := parse(r); ok {
			t.Errorf("%s %v is served here, want it forwarded: %+v", r.Method, r.Header, q)
		}
	}
}

func TestTheFirstAcceptedFormsCount(t *testing.T) {
	for accept, want := range map[string][]form{
		"":    {{enc: object.JSON}},
		"*/*": {{enc: object.JSON}},
		"application/vnd.kubernetes.protobuf, */*": {{enc: object.Protobuf}, {enc: object.JSON}},
		"application/json;stream=watch":            {{enc: object.JSON}},
		"application/json, */*":                    {{enc: object.JSON}},
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
			t.Errorf("%s, %s: %+v, served here: %v", c.path, c.accept, q, ok)
		}
	}
}

func TestConfigIsValidated(t *testing.T) {
	cfg := Defaults()
	cfg.MaxFeeds = 0
	for _, want := range []string{"Source, Guard, Upstream and Budget", "MaxFeeds"} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not mention %s", err, want)
		}
	}
}

func TestAttributesAreAnApiservers(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods":                                                 "list /v1/pods  ",
		"/api/v1/namespaces/a/pods?watch=1":                            "watch /v1/pods a ",
		"/api/v1/namespaces/a/pods/b?resourceVersion=0":                "get /v1/pods a b",
		"/api/v1/namespaces/a?resourceVersion=0":                       "get /v1/namespaces a a",
		"/api/v1/namespaces":                                           "list /v1/namespaces  ",
		"/apis/apps/v1/namespaces/a/deployments":                       "list apps/v1/deployments a ",
		"/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dn":        "watch /v1/nodes  n metadata.name=n",
		"/api/v1/nodes?fieldSelector=metadata.name!%3Dn":               "list /v1/nodes   metadata.name!=n",
		"/api/v1/pods?fieldSelector=spec.nodeName%3Dn&labelSelector=a": "list /v1/pods   spec.nodeName=n a",
	} {
		q, ok := parse(get(path, ""))
		if !ok {
			t.Errorf("%s is forwarded to an apiserver, want it served here", path)
			continue
		}
		a := q.attributes()
		got := fmt.Sprintf("%s %s/%s/%s %s %s %s %s", a.Verb, a.Group, a.Version, a.Resource, a.Namespace, a.Name, a.FieldSelector, a.LabelSelector)
		if strings.TrimRight(got, " ") != strings.TrimRight(want, " ") {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
