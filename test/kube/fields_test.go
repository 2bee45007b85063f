package kube_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSelectableFieldsEqual lists and watches a custom resource at a node by its selectable fields,
// in two versions with different fields. The results equal the apiserver's, including the events of
// objects that enter and leave a selection, for an open watch and for a later one.
func TestSelectableFieldsEqual(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	if code, _, answer := c.do(t, http.MethodPost, a.url+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", widget); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	x := c.tier(t, nil, nil, a.url)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	at := func(version string) string {
		return "/apis/example.com/" + version + "/namespaces/default/widgets"
	}
	var start metav1.PartialObjectMetadata
	for _, version := range []string{"v1", "v2"} {
		for _, base := range []string{a.url, x.url} { // the node follows both from now on
			eventually(ctx, t, "widgets are served", func() error {
				code, _, answer := c.do(t, http.MethodGet, base+at(version)+"?resourceVersion=0", "", "")
				if code != http.StatusOK {
					return fmt.Errorf("%d %s", code, answer)
				}
				return json.Unmarshal([]byte(answer), &start)
			})
		}
	}
	type query struct{ version, fields, labels string }
	queries := []query{
		{"v1", "spec.color=red", ""},
		{"v1", "spec.color!=red", ""},
		{"v1", "metadata.name=w-1,spec.color=red", ""},
		{"v1", "spec.color=red", "odd=yes"},
		{"v1", "metadata.name=w-1", ""},
		{"v1", "metadata.namespace=default", "odd=yes"}, // the node answers these
		{"v2", "spec.size=7", ""},
		{"v2", "spec.size=7,metadata.name!=w-2", ""},
		{"v2", "spec.size=none", ""},
	}
	path := func(q query, more string) string {
		return at(q.version) + "?fieldSelector=" + url.QueryEscape(q.fields) + "&labelSelector=" + url.QueryEscape(q.labels) + more
	}
	since := "&watch=1&resourceVersion=" + start.ResourceVersion
	open := map[query]<-chan string{}
	for _, q := range queries {
		open[q] = lines(ctx, t, c.client, c.token, x.url+path(q, since))
	}
	change := func(method, name, body string) {
		t.Helper()
		path := at("v1")
		if method != http.MethodPost {
			path += "/" + name
		}
		if code, _, answer := c.do(t, method, a.url+path, "", body); code >= 300 {
			t.Fatalf("%s %s: %d %s", method, name, code, answer)
		}
	}
	for i, color := range []string{"red", "blue", "red", "green"} {
		change(http.MethodPost, "", fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w-%d","labels":{"odd":%q}},"spec":{"color":%q,"size":%d}}`, i, []string{"no", "yes"}[i%2], color, 6+i%2))
	}
	for _, patch := range [][2]string{
		{"w-1", `{"spec":{"color":"red"}}`},
		{"w-0", `{"spec":{"color":"blue","size":7}}`},
		{"w-1", `{"spec":{"size":8}}`},
		{"w-1", `{"metadata":{"labels":{"odd":"no"}}}`},
		{"w-3", `{"spec":{"color":"red"}}`},
		{"w-1", `{"spec":{"color":null}}`},
	} {
		change(http.MethodPatch, patch[0], patch[1])
	}
	change(http.MethodDelete, "w-2", "")
	change(http.MethodDelete, "w-3", "")
	check := func(q query) {
		_, _, text := c.do(t, http.MethodGet, a.url+path(q, since+"&timeoutSeconds=5"), "", "")
		want := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if none := q.fields == "spec.size=none"; (text == "") != none {
			t.Errorf("%v selects %s", q, text)
		} else if none {
			want = nil
		}
		watches := map[string]<-chan string{"from before": open[q], "of the past": lines(ctx, t, c.client, c.token, x.url+path(q, since))}
		for when, watch := range watches {
			for i := range want {
				select {
				case got := <-watch:
					if got != want[i] {
						t.Errorf("%v: event %d of a watch %s is\n%s\nwant\n%s", q, i, when, got, want[i])
					}
				case <-ctx.Done():
					t.Errorf("%v: event %d of a watch %s does not come, want %s", q, i, when, want[i])
					return
				}
			}
		}
		for _, more := range []string{"", "&limit=1"} {
			got, want := c.names(t, x.url+path(q, more)), c.names(t, a.url+path(q, more))
			if !slices.Equal(got, want) {
				t.Errorf("%v%s lists %v, want %v", q, more, got, want)
			}
		}
	}
	var checks sync.WaitGroup
	for _, q := range queries {
		checks.Go(func() { check(q) })
	}
	checks.Wait()
	for _, fields := range []string{"spec.size=7", "spec.none=1"} { // of the other version, and of none
		code, _, want := c.do(t, http.MethodGet, a.url+path(query{"v1", fields, ""}, ""), "", "")
		got, _, answer := c.do(t, http.MethodGet, x.url+path(query{"v1", fields, ""}, ""), "", "")
		if got != code || answer != want || code != http.StatusBadRequest {
			t.Errorf("%s: %d %s, want %d %s", fields, got, answer, code, want)
		}
	}
}

// names lists objects, chunk by chunk, and returns their names and versions.
func (c *cluster) names(t *testing.T, list string) (all []string) {
	t.Helper()
	for token := ""; ; {
		code, _, answer := c.do(t, http.MethodGet, list+"&continue="+url.QueryEscape(token), "", "")
		var page metav1.PartialObjectMetadataList
		if err := json.NewDecoder(bytes.NewBufferString(answer)).Decode(&page); err != nil || code != http.StatusOK {
			t.Errorf("%s: %d %s", list, code, answer)
			return all
		}
		for i := range page.Items {
			all = append(all, page.Items[i].Name+"@"+page.Items[i].ResourceVersion)
		}
		if token = page.Continue; token == "" {
			return all
		}
	}
}
