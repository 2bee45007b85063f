package page

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"html/template"
	"net/http"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/report"
	"github.com/shardwatch/shardwatch/internal/ops/statuspage"
)

const (
	// maxReaders bounds the reports that are made and sent at a time; excess requests get 503.
	maxReaders = 4
	// writeTimeout bounds the time that a client takes to read a report.
	writeTimeout = 10 * time.Second
)

//go:embed assets/kube.html
var html string

//go:embed assets/kube.js
var script string

// Page serves a node's reports.
type Page struct {
	report  func() report.Report
	readers chan struct{} // a value for each request in progress
	html    *template.Template
}

// New returns a page of reports. It calls report from any goroutine, at most four times concurrently.
func New(report func() report.Report) *Page {
	return &Page{report: report, readers: make(chan struct{}, maxReaders), html: template.Must(template.New("").Parse(html))}
}

// Register adds to mux:
//
//   - GET /kube, the report as JSON;
//   - /, the page, and its files below /status/, if pages is true.
func (p *Page) Register(mux *http.ServeMux, pages bool) {
	mux.HandleFunc("GET "+report.Path, p.bounded(p.json))
	if pages {
		mux.HandleFunc("GET /{$}", p.bounded(p.page))
		statuspage.Look(mux, map[string]string{"kube.js": script})
	}
}

// bounded answers requests beyond maxReaders with 503.
func (p *Page) bounded(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case p.readers <- struct{}{}:
			defer func() { <-p.readers }()
			answer(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests for reports at a time", http.StatusServiceUnavailable)
		}
	}
}

func (p *Page) json(w http.ResponseWriter, _ *http.Request) {
	send(w, "application/json", func(out *bytes.Buffer) error { return json.NewEncoder(out).Encode(p.report()) })
}

func (p *Page) page(w http.ResponseWriter, r *http.Request) {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	send(w, "text/html; charset=utf-8", func(out *bytes.Buffer) error {
		now := p.report()
		return p.html.Execute(out, viewOf(&now, time.Now(), scheme))
	})
}

// send makes the whole body, and then sends it.
func send(w http.ResponseWriter, kind string, make func(*bytes.Buffer) error) {
	var out bytes.Buffer
	if err := make(&out); err != nil { // impossible: every report can be encoded
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := statuspage.Guard(w)
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // fails in tests without a connection
	_, _ = w.Write(out.Bytes())                                                      // the client may have gone
}
