package page

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/report"
)

// ask sends a request to a page.
func ask(p *Page, method, path string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	p.Register(mux, true)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
	return w
}

// sample is a report with a value in each field.
func sample() report.Report {
	return report.Report{
		Node: "a", Version: "v1", Zone: "z", Started: time.Unix(1e9, 0).UTC(), NotReady: []string{"draining"},
		Apiservers: []report.Apiserver{{URL: "https://one:6443"}, {URL: "https://two:6443", Avoided: true, Error: "connection refused"}},
		Members:    []report.Member{{Name: "a", HTTP: "10.0.0.1:7480", Zone: "z", Version: "v1"}, {Name: "b", HTTP: "10.0.0.2:7480", Version: "v2"}},
		Requests:   report.Requests{Cached: 1, Passed: 2, Failed: 3},
		Resources: []report.Resource{
			{Name: "pods.v1", Encoding: "protobuf", State: report.Ready, From: "b", Objects: 4, Bytes: 5 << 20, Floor: 6, Progress: 7, Watches: 8, Losses: 9},
			{Name: "things.v1.example.com", Encoding: "json", State: report.Failing, Error: "<b>refused</b>"},
		},
	}
}

// Programs read the current report as JSON. No cache may store it.
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

// A page makes at most four reports at a time, and refuses further requests.
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
		t.Errorf("with four requests in progress, a fifth gets %d, headers %v", w.Code, w.Header())
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
		t.Errorf("a request after the four others gets %d", code)
	}
}

// text returns the visible text of a page, its words separated by single spaces.
func text(html string) string {
	_, html, _ = strings.Cut(html, "<body>")
	var out strings.Builder
	for part := range strings.SplitSeq(html, "<") {
		_, words, _ := strings.Cut(part, ">")
		out.WriteString(words + " ")
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// The page shows the content of the report, and escapes texts of other programs, such as failures.
func TestThePageForPeople(t *testing.T) {
	w := ask(New(sample), http.MethodGet, "/")
	body := w.Body.String()
	if h := w.Header(); w.Code != http.StatusOK || h.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%d, headers %v", w.Code, h)
	}
	shown := text(body)
	for _, want := range []string{
		"Kubernetes' API at a in z", "This node is not ready: draining.",
		"1 of 2 resources are stale", "1 of 2 apiservers have failed within the last minute",
		"Objects 4", "Memory 5.0 MiB", "Requests 1 ", "Passed on 2 3 failed",
		"pods.v1 protobuf ready b 4 5.0 MiB 7 6 8 9", "things.v1.example.com json failing &lt;b&gt;refused&lt;/b&gt; 0 0 B 0 0 0 0",
		"https://one:6443 in use", "https://two:6443 avoided connection refused", "a this node z v1", "b v2",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(shown)
	}
	if !strings.Contains(body, `data-level="bad" role="status"`) || !strings.Contains(body, `<a href="http://10.0.0.2:7480/">b</a>`) {
		t.Error("the page has no verdict of level bad, or no link to the other node")
	}
	for path, kind := range map[string]string{
		"/status/page.css": "text/css; charset=utf-8", "/status/kube.js": "text/javascript; charset=utf-8", "/status/icon.svg": "image/svg+xml",
	} {
		if !strings.Contains(body, path) {
			t.Errorf("the page does not refer to %s", path)
		}
		if w := ask(New(sample), http.MethodGet, path); w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind {
			t.Errorf("%s: %d, headers %v", path, w.Code, w.Header())
		}
	}
	none := http.NewServeMux()
	New(sample).Register(none, false)
	for path, want := range map[string]int{"/": http.StatusNotFound, "/status/page.css": http.StatusNotFound, report.Path: http.StatusOK} {
		w := httptest.NewRecorder()
		if none.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody)); w.Code != want {
			t.Errorf("%s of a node without a page: status %d", path, w.Code)
		}
	}
}

// The sentences at the top of the page name each problem, and nothing else.
func TestTheVerdict(t *testing.T) {
	one := func(r report.Resource) report.Report {
		return report.Report{Resources: []report.Resource{{State: report.Ready}, r}}
	}
	for _, c := range []struct {
		r           report.Report
		level, says string
	}{
		{report.Report{}, "ok", "is ready"},
		{one(report.Resource{State: report.Loading}), "ok", "is ready, and loads 1 of 2 resources"},
		{one(report.Resource{State: report.Loading, Error: "refused"}), "warn", "1 of 2 resources cannot be loaded"},
		{one(report.Resource{State: report.Failing}), "warn", "1 of 2 resources are stale"},
		{one(report.Resource{State: report.Withdrawn}), "warn", "1 of 2 resources are preloaded, but"},
		{report.Report{Apiservers: []report.Apiserver{{Avoided: true}}}, "warn", "1 of 1 apiservers have failed"},
		{report.Report{NotReady: []string{"draining"}, Apiservers: []report.Apiserver{{Avoided: true}}}, "bad", "draining"},
	} {
		v := viewOf(&c.r, time.Now(), "http")
		if v.Level != c.level || !strings.Contains(v.Verdict[0], c.says) {
			t.Errorf("%+v: %s %q, want %s and %q", c.r, v.Level, v.Verdict, c.level, c.says)
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64][2]string{
		0: {"0", "0 B"}, 999: {"999", "999 B"}, 1000: {"1,000", "1000 B"}, 1024: {"1,024", "1.0 KiB"}, 1234567: {"1,234,567", "1.2 MiB"}, 20 << 30: {"21,474,836,480", "20 GiB"}, 1 << 60: {"1,152,921,504,606,846,976", "1048576 TiB"},
	} {
		if got := [2]string{count(n), size(n)}; got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
