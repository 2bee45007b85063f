package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shardwatch/shardwatch/internal/kube/report"
)

// report reads the report of a node.
func (n *node) report(ctx context.Context) (out report.Report, err error) {
	text, err := n.get(ctx, report.Path)
	if err == nil {
		err = json.Unmarshal([]byte(text), &out)
	}
	return out, err
}

// TestTheReportsOfTwoNodes watches at each of two nodes that share their watches. Each reports its
// resources, their users and their source; the page of each shows the same.
func TestTheReportsOfTwoNodes(t *testing.T) {
	c := newCluster(t)
	at := c.apiserver(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	nodes := c.shared(t, []string{at.url}, []string{"a", "b"}, "--zone", "z")
	for _, n := range nodes {
		c.open(ctx, t, "https://"+n.kube, c.ca.IssueIn(t, "root", "system:masters"))
	}
	stored, err := c.clients(t, at.url, nil).CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	objects := int64(len(stored.Items))
	members := map[string]string{nodes[0].name: nodes[0].http, nodes[1].name: nodes[1].http}
	owners := [][]string{{at.url, nodes[0].name}, {nodes[1].name, at.url}}
	var reports []report.Report
	eventually(ctx, t, "one node follows the apiserver, the other one that node", func() error {
		reports = nil
		var from []string
		for _, n := range nodes {
			got, err := n.report(ctx)
			if err != nil {
				return err
			}
			told := map[string]string{}
			for _, m := range got.Members {
				told[m.Name] = m.HTTP
			}
			if len(got.Resources) != 1 || got.Resources[0].Watches != 1 || !maps.Equal(told, members) {
				return fmt.Errorf("%s: %+v", n.name, got)
			}
			reports, from = append(reports, got), append(from, got.Resources[0].From)
		}
		if !slices.Equal(from, owners[0]) && !slices.Equal(from, owners[1]) {
			return fmt.Errorf("it is followed at %q", from)
		}
		return nil
	})
	for i, n := range nodes {
		got, held := reports[i], reports[i].Resources[0]
		if got.Node != n.name || got.Zone != "z" || got.Version == "" || got.Started.IsZero() || got.NotReady != nil || got.Requests.Cached < 1 {
			t.Errorf("%s is told as %+v", n.name, got)
		}
		if a := got.Apiservers; len(a) != 1 || a[0].URL != at.url || a[0].Avoided {
			t.Errorf("%s asks %+v", n.name, a)
		}
		want := report.Resource{
			Name: "configmaps.v1", Encoding: "json", State: report.Ready, From: held.From, Objects: objects, Bytes: held.Bytes, Floor: held.Floor, Progress: held.Progress, Watches: 1,
		}
		if held != want || objects == 0 || held.Bytes <= 0 || held.Floor <= 0 || held.Progress <= 0 {
			t.Errorf("%s has %+v, want %+v", n.name, held, want)
		}
		page, err := n.get(ctx, "/")
		if err != nil {
			t.Fatal(err)
		}
		_, row, _ := strings.Cut(page, "<strong>configmaps.v1</strong>")
		row, _, _ = strings.Cut(row, "</tr>")
		for _, cell := range []string{`json`, `ready`, `>` + held.From + `<`, fmt.Sprintf(`data-label="Objects">%d<`, objects), `data-label="Watches">1<`} {
			if !strings.Contains(row, cell) {
				t.Errorf("the page of %s lacks %q in %q", n.name, cell, row)
			}
		}
		for _, link := range []string{`data-level="ok"`, at.url, `href="http://` + nodes[0].http + `/"`, `href="http://` + nodes[1].http + `/"`} {
			if !strings.Contains(page, link) {
				t.Errorf("the page of %s lacks %q", n.name, link)
			}
		}
	}
}
