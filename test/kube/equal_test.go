package kube_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/shardwatch/shardwatch/internal/kube/object"
)

// TestReadsEqual compares lists, chunks and gets of the tier with an apiserver's, and watches with
// selectors under churn event by event.
func TestReadsEqual(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	direct := c.clients(t, a.url, nil)
	r := rand.New(rand.NewPCG(13, 14))
	churn(t, direct, r, 60)
	x := c.tier(t, nil, nil, a.url)
	for _, enc := range []object.Encoding{object.JSON, object.Protobuf} {
		through := c.clients(t, x.url, func(cfg *rest.Config) { cfg.ContentType = enc.MediaType() })
		compareLists(t, enc, through, direct)
		compareWatches(t, enc, through, direct, r)
	}
	denied := c.clients(t, x.url, func(cfg *rest.Config) { cfg.BearerToken = "wrong" })
	if _, err := denied.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("with a wrong token: %v", err)
	}
	table := c.body(t, x.url+"/api/v1/namespaces/default/configmaps", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	if !strings.Contains(table, `"kind":"Table"`) {
		t.Errorf("a table is %.200s", table)
	}
	if body := c.body(t, x.url+"/version", ""); !strings.Contains(body, "gitVersion") {
		t.Errorf("/version is %.200s", body)
	}
	// The death of a node within the first second of a watch must not make its reflector list:
	// there is a bookmark at the start, in addition to the one at the end.
	now, err := direct.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]int{
		"resourceVersion=" + now.ResourceVersion:                   2,
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan": 3,
	} {
		watch := c.body(t, x.url+"/api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=true&timeoutSeconds=1&"+query, "")
		if n := strings.Count(watch, `"BOOKMARK"`); n != want {
			t.Errorf("%d bookmarks in a quiet watch with %s, want %d: %s", n, query, want, watch)
		}
	}
	a.kill()
	// While no apiserver answers, no answer may make a reflector list again.
	if body := c.body(t, x.url+"/api/v1/namespaces/default/secrets", ""); !strings.Contains(body, `"code":429`) || !strings.Contains(body, `"retryAfterSeconds":1`) {
		t.Errorf("a resource that is not followed, without an apiserver: %.200s", body)
	}
	set := c.clients(t, x.url, nil)
	if _, err := set.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Errorf("a followed resource, without an apiserver: %v", err)
	}
}

func (c *cluster) body(t *testing.T, url, accept string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Accept", accept)
	resp, err := c.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func compareLists(t *testing.T, enc object.Encoding, through, direct *kubernetes.Clientset) {
	t.Helper()
	for _, o := range []metav1.ListOptions{
		{}, {ResourceVersion: "0"}, {LabelSelector: "parity=1"}, {FieldSelector: "metadata.name=m-3"}, {LabelSelector: "parity", FieldSelector: "metadata.name!=m-3"},
	} {
		want, err := direct.CoreV1().ConfigMaps("default").List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := through.CoreV1().ConfigMaps("default").List(t.Context(), o)
		if err != nil {
			t.Fatalf("%v %+v: %v", enc, o, err)
		}
		if !equality.Semantic.DeepEqual(items(got), items(want)) {
			t.Errorf("%v %+v:\ngot  %v\nwant %v", enc, o, items(got), items(want))
		}
	}
	whole, err := through.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, selector := range []string{"", "parity=1"} {
		got, want := inChunks(t, through, selector), inChunks(t, direct, selector)
		if !slices.Equal(got, want) {
			t.Errorf("%v in chunks, selector %q:\ngot  %v\nwant %v", enc, selector, got, want)
		}
	}
	for i := range whole.Items {
		got, err := through.CoreV1().ConfigMaps("default").Get(t.Context(), whole.Items[i].Name, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil || got.ResourceVersion != whole.Items[i].ResourceVersion {
			t.Errorf("%v: got %+v, %v", enc, got, err)
		}
	}
	if _, err := through.CoreV1().ConfigMaps("default").Get(t.Context(), "missing", metav1.GetOptions{ResourceVersion: "0"}); !apierrors.IsNotFound(err) {
		t.Errorf("%v: a missing object: %v", enc, err)
	}
}

// items returns the items without their types, which only JSON lists contain.
func items(l *corev1.ConfigMapList) (out []corev1.ConfigMap) {
	for i := range l.Items {
		item := l.Items[i]
		item.TypeMeta = metav1.TypeMeta{}
		out = append(out, item)
	}
	return out
}

func compareWatches(t *testing.T, enc object.Encoding, through, direct *kubernetes.Clientset, r *rand.Rand) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start, err := direct.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	type pair struct {
		o    metav1.ListOptions
		read [2]func() []string
	}
	var pairs []pair
	for _, selectors := range [][2]string{{"", ""}, {"parity=1", ""}, {"parity!=0", ""}, {"", "metadata.name=m-end"}, {"parity in (1)", "metadata.name!=m-3"}} {
		p := pair{o: metav1.ListOptions{LabelSelector: selectors[0], FieldSelector: selectors[1], ResourceVersion: start.ResourceVersion}}
		for i, set := range []*kubernetes.Clientset{through, direct} {
			w, err := set.CoreV1().ConfigMaps("default").Watch(ctx, p.o)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			p.read[i] = func() (told []string) {
				for e := range w.ResultChan() {
					m, ok := e.Object.(*corev1.ConfigMap)
					if !ok {
						return append(told, fmt.Sprintf("%s %+v", e.Type, e.Object))
					}
					told = append(told, fmt.Sprintf("%s %s@%s %v %v", e.Type, m.Name, m.ResourceVersion, m.Labels, m.Data))
					if m.Name == "m-end" {
						return told
					}
				}
				return append(told, "the watch has ended")
			}
		}
		pairs = append(pairs, p)
	}
	churn(t, direct, r, 80)
	end := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m-end", Labels: map[string]string{"parity": "1"}}}
	if _, err := direct.CoreV1().ConfigMaps("default").Create(ctx, end, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		got, want := p.read[0](), p.read[1]()
		if !slices.Equal(got, want) {
			t.Errorf("%v %+v:\ngot  %v\nwant %v", enc, p.o, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if err := direct.CoreV1().ConfigMaps("default").Delete(ctx, "m-end", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// inChunks lists config maps in chunks of three. It returns the names in each, and the number of
// remaining ones.
func inChunks(t *testing.T, c *kubernetes.Clientset, selector string) (chunks []string) {
	t.Helper()
	for next := ""; ; {
		part, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: selector, Limit: 3, Continue: next})
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for i := range part.Items {
			text += part.Items[i].Name + " "
		}
		if n := part.RemainingItemCount; n != nil {
			text += fmt.Sprintf("and %d more", *n)
		}
		chunks = append(chunks, text)
		if next = part.Continue; next == "" {
			return chunks
		}
	}
}
