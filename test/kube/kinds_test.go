package kube_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/shardwatch/shardwatch/internal/kube/api"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// stubs returns an object of each kind of Kubernetes, and its required objects, from the data of
// Kubernetes' own test of stored objects.
func stubs(t *testing.T) map[schema.GroupVersionResource]string {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	list.Dir = apiserverModule(t)
	dir, err := list.Output()
	if err != nil || len(bytes.TrimSpace(dir)) == 0 {
		testkit.Missing(t, "the module of Kubernetes is not here: %v", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(string(bytes.TrimSpace(dir)), "test", "integration", "etcd", "data.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[schema.GroupVersionResource]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		call, ok := pair.Key.(*ast.CallExpr)
		value, composite := pair.Value.(*ast.CompositeLit)
		if !ok || !composite || len(call.Args) != 3 {
			return true
		}
		r := schema.GroupVersionResource{Group: text(t, call.Args[0]), Version: text(t, call.Args[1]), Resource: text(t, call.Args[2])}
		for _, field := range value.Elts {
			if field, ok := field.(*ast.KeyValueExpr); ok && field.Key.(*ast.Ident).Name == "Stub" {
				all[r] = text(t, field.Value)
			}
		}
		return false
	})
	return all
}

// text evaluates an expression of strings.
func text(t *testing.T, e ast.Expr) string {
	t.Helper()
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		if err != nil {
			t.Fatal(err)
		}
		return s
	case *ast.BinaryExpr:
		return text(t, e.X) + text(t, e.Y)
	case *ast.Ident:
		return map[string]string{"namespace": "default", "image": "busybox"}[e.Name]
	}
	t.Fatalf("an expression of type %T in the data of Kubernetes' test", e)
	return ""
}

// widget is a custom resource with two versions and selectable fields.
const widget = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}, "spec": {
"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [
{"name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": ".spec.color"}],
 "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}, "size": {"type": "integer", "default": 7}}}}}}},
{"name": "v2", "served": true, "storage": false, "selectableFields": [{"jsonPath": ".spec.size"}],
 "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}, "size": {"type": "integer"}}}}}}}]}}`

// do sends a request and returns the answer's code, media type and body.
func (c *cluster) do(t *testing.T, method, url, accept, body string) (code int, media, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		t.Error(err)
		return 0, "", ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(b)
}

// kind is a resource that an apiserver serves.
type kind struct {
	path, name string // of the collection, and of an object
	start      string // the version before the object
}

// deprecated is an annotation that apiservers omit in the metadata of a DaemonSet, but not in the
// whole object.
const deprecated = `"annotations":{"deprecated.daemonset.template.generation":"1"},`

// comparable removes from an answer the differences in docs/kubernetes.md.
func comparable(k *kind, answer string) string {
	if strings.Contains(k.path, "/example.com/") {
		return ordered(answer)
	}
	if strings.HasSuffix(k.path, "/daemonsets") && strings.Contains(answer, `"PartialObjectMetadata`) {
		answer = strings.ReplaceAll(answer, deprecated, "")
	}
	return answer
}

// ordered formats JSON, one or more documents, with the names of objects in order: apiservers have
// two orders for custom resources.
func ordered(answer string) (text string) {
	for next := json.NewDecoder(strings.NewReader(answer)); ; {
		var document map[string]any
		if err := next.Decode(&document); err != nil {
			return text + fmt.Sprint(err)
		}
		if meta, ok := document["metadata"].(map[string]any); ok && meta["continue"] == "" {
			delete(meta, "continue")
		}
		b, err := json.Marshal(document)
		if err != nil {
			return text + err.Error()
		}
		text += string(b)
	}
}

// around quotes a text at its first difference from another.
func around(text, other string) string {
	i := 0
	for i < min(len(text), len(other)) && text[i] == other[i] {
		i++
	}
	return fmt.Sprintf("%d bytes, … %q", len(text), text[max(0, i-60):min(len(text), i+200)])
}

// TestEveryKindEqual creates an object of each kind of an apiserver, including alpha and beta
// versions and a custom resource. Lists, gets and watches of the tier equal the apiserver's, byte
// by byte, in both encodings, whole and as metadata, and no apiserver answers them.
func TestEveryKindEqual(t *testing.T) {
	c := newCluster(t)
	all := stubs(t)
	a := c.apiserver(t, "--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true")
	if code, _, answer := c.do(t, http.MethodPost, a.url+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", widget); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	for _, version := range []string{"v1", "v2"} {
		all[schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "widgets"}] = fmt.Sprintf(`{"apiVersion": "example.com/%[1]s", "kind": "Widget", "metadata": {"name": "w-%[1]s"}, "spec": {"color": "red"}}`, version)
	}
	x := c.tier(t, func(cfg *api.Config) { cfg.Secrets = true }, nil, a.url)
	direct := c.clients(t, a.url, nil)
	var served []*metav1.APIResourceList
	eventually(t.Context(), t, "the custom resource is served", func() (err error) {
		if _, served, err = direct.Discovery().ServerGroupsAndResources(); err != nil {
			return err
		}
		if !slices.ContainsFunc(served, func(l *metav1.APIResourceList) bool { return l.GroupVersion == "example.com/v2" }) {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	accepts := []string{
		object.JSON.MediaType(), object.Protobuf.MediaType(),
		object.JSON.MediaType() + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1", object.Protobuf.MediaType() + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
	}
	list := func(accept string) string { return strings.Replace(accept, "Metadata;", "MetadataList;", 1) }
	var kinds []*kind
	without := map[string]bool{}
	for _, group := range served {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
				continue
			}
			stub, ok := all[gv.WithResource(r.Name)]
			delete(all, gv.WithResource(r.Name))
			if !ok {
				without[gv.WithResource(r.Name).String()] = true
				continue
			}
			k := &kind{path: "/apis/" + group.GroupVersion}
			if gv.Group == "" {
				k.path = "/api/v1"
			}
			if r.Namespaced {
				k.path += "/namespaces/default"
			}
			k.path += "/" + r.Name
			var meta metav1.PartialObjectMetadata
			for _, accept := range accepts { // the tier follows it from now on
				c.do(t, http.MethodGet, x.url+k.path, list(accept), "")
			}
			_, _, answer := c.do(t, http.MethodGet, a.url+k.path, "", "")
			if err := json.Unmarshal([]byte(answer), &meta); err != nil {
				t.Fatal(err)
			}
			k.start = meta.ResourceVersion
			code, _, answer := c.do(t, http.MethodPost, a.url+k.path, "", stub)
			if code != http.StatusCreated && code != http.StatusConflict {
				without[k.path+": "+answer[:min(200, len(answer))]] = true
				continue
			}
			if err := json.Unmarshal([]byte(stub), &meta); err != nil {
				t.Fatal(err)
			}
			if k.name = meta.Name; k.name == "" {
				without[k.path+" has a name of its own"] = true
				continue
			}
			if code, _, answer := c.do(t, http.MethodPatch, a.url+k.path+"/"+k.name, "", `{"metadata": {"labels": {"changed": "yes"}}}`); code != http.StatusOK {
				t.Errorf("%s: %d %s", k.path, code, answer)
			}
			kinds = append(kinds, k)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(without)) {
		t.Errorf("not compared: %s", reason)
	}
	for r := range all {
		t.Logf("not served, or without a list: %v", r)
	}
	x.mu.Lock()
	clear(x.passed)
	x.mu.Unlock()
	var running sync.WaitGroup
	limit := make(chan struct{}, 64)
	for _, k := range kinds {
		for _, accept := range accepts {
			watch := accept
			if accept == object.Protobuf.MediaType() || accept == object.JSON.MediaType() {
				watch += ";stream=watch"
			}
			running.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				var now metav1.PartialObjectMetadata
				if _, _, answer := c.do(t, http.MethodGet, a.url+k.path, "application/json", ""); json.Unmarshal([]byte(answer), &now) != nil {
					t.Errorf("%s: %s", k.path, answer)
				}
				for url, accept := range map[string]string{
					"?resourceVersionMatch=Exact&resourceVersion=" + now.ResourceVersion: list(accept),
					"/" + k.name + "?resourceVersion=0":                                  accept,
					"?watch=1&timeoutSeconds=2&resourceVersion=" + k.start:               watch,
				} {
					code, media, want := c.do(t, http.MethodGet, a.url+k.path+url, accept, "")
					got, as, answer := c.do(t, http.MethodGet, x.url+k.path+url, accept, "")
					if code == http.StatusNotAcceptable && got == code {
						continue // a custom resource has no protobuf
					}
					want, answer = comparable(k, want), comparable(k, answer)
					if strings.HasSuffix(k.path, "/daemonsets") && strings.Contains(accept, "protobuf;as=") {
						continue // see deprecated
					}
					if got != code || as != media || answer != want || code != http.StatusOK || want == "" {
						t.Errorf("%s%s %s:\ngot  %d %s %s\nwant %d %s %s", k.path, url, accept, got, as, around(answer, want), code, media, around(want, answer))
					}
				}
			})
		}
	}
	running.Wait()
	t.Logf("%d kinds of %d compared", len(kinds), len(kinds)+len(without))
	if len(kinds) < 70 {
		t.Errorf("%d kinds, want 70 at least", len(kinds))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for request := range x.passed {
		// A custom resource has no protobuf, and events no progress.
		if (!strings.Contains(request, "/apis/example.com/") || !strings.Contains(request, "protobuf")) && !strings.Contains(request, "/events?resourceVersionMatch") {
			t.Errorf("an apiserver answered %s", request)
		}
	}
}
