package page

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/report"
)

// ask sends a request to a page.
func ask(p *Page, method, path string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	p.Register(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
	return w
}

// sample is a report with a value in each field.
func sample() report.Report {
	return report.Report{
		Node: "a", Version: "v1", Zone: "z", Started: time.Unix(1e9, 0).UTC(), NotReady: []string{"draining"},
		Apiservers: []report.Apiserver{{URL: "https://one:6443"}, {URL: "https://two:6443", Avoided: true}},
		Members:    []report.Member{{Name: "a", HTTP: "10.0.0.1:7480", Zone: "z", Version: "v1"}, {Name: "b", HTTP: "10.0.0.2:7480", Version: "v2"}},
		Requests:   report.Requests{Cached: 1, Passed: 2, Failed: 3},
		Resources: []report.Resource{
			{Name: "pods.v1", Encoding: "protobuf", State: report.Ready, From: "b", Objects: 4, Bytes: 5 << 20, Floor: 6, Progress: 7, Watches: 8, Losses: 9},
			{Name: "things.v1.example.com", Encoding: "json", State: report.Failing, Error: "<b>refused</b>"},
		},
	}
}

// TestTheReportAsJSON has programs read the report of the moment, which nothing between keeps.
func TestTheReportAsJSON(t *testing.T) {
	want := sample()
	w := ask(New(sample), http.MethodGet, report.Path)
	var got report.Report
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if w.Code != http.StatusOK || !reflect.DeepEqual(got, want) {
		t.Errorf("%d: got %+v, want %+v", w.Code, got, want)
	}
	if h := w.Header(); h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", h)
	}
	if w := ask(New(sample), http.MethodPost, report.Path); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

// TestReportsAreBounded has requests beyond four at a time come back later.
func TestReportsAreBounded(t *testing.T) {
	made, end := make(chan struct{}), make(chan struct{})
	p := New(func() report.Report {
		made <- struct{}{}
		<-end
		return report.Report{}
	})
	answered := make(chan int, maxReaders)
	for range maxReaders {
		go func() { answered <- ask(p, http.MethodGet, report.Path).Code }()
		<-made
	}
	if w := ask(p, http.MethodGet, report.Path); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("a fifth request: %d, headers %v", w.Code, w.Header())
	}
	close(end)
	for range maxReaders {
		if code := <-answered; code != http.StatusOK {
			t.Errorf("status %d", code)
		}
	}
	go func() { answered <- ask(p, http.MethodGet, report.Path).Code }()
	<-made
	if code := <-answered; code != http.StatusOK {
		t.Errorf("afterwards: %d", code)
	}
}
