package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/report"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func TestBoundOfNodes(t *testing.T) {
	first := report.Report{Node: "n"}
	for i := range maxNodes + 100 {
		first.Members = append(first.Members, report.Member{Name: fmt.Sprint(i), HTTP: fmt.Sprintf("n-%d:1", i)})
	}
	body, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	a := newAsker(nil, time.Minute)
	a.http.Transport = transport(func(r *http.Request) (*http.Response, error) {
		asked.Add(1)
		if r.URL.Host != "n:1" {
			return nil, errors.New("away")
		}
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(body)))}, nil
	})
	got := a.tier(t.Context(), []string{"n:1"}, false)
	if n := asked.Load(); n != maxNodes {
		t.Errorf("%d nodes were asked, want %d", n, maxNodes)
	}
	left := 0
	for _, n := range got.silent() {
		if strings.Contains(n.silence.why, "not asked") {
			left++
		}
	}
	if len(got.nodes) != maxNodes+101 || left != 101 {
		t.Errorf("%d nodes, %d of them not asked", len(got.nodes), left)
	}
}

func TestNodesAreAskedConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		answer := make(chan struct{})
		a := newAsker(nil, time.Minute)
		a.http.Transport = transport(func(*http.Request) (*http.Response, error) {
			asked.Add(1)
			<-answer
			return nil, errors.New("away")
		})
		go a.tier(t.Context(), []string{"n:1", "n:2", "n:3"}, true)
		synctest.Wait()
		if n := asked.Load(); n != 3 {
			t.Errorf("%d nodes were asked before the first one answered, want 3", n)
		}
		close(answer)
	})
}
