package page

import (
	"encoding/json"
	"net/http"

	"github.com/shardwatch/shardwatch/internal/kube/report"
)

// maxReaders is how many reports are made at a time; more requests get 503.
const maxReaders = 4

// Page serves a node's reports.
type Page struct {
	report  func() report.Report
	readers chan struct{} // one for each request that is answered
}

// New returns a page of reports. The function may be called from any goroutine, at most four times at a time.
func New(report func() report.Report) *Page {
	return &Page{report: report, readers: make(chan struct{}, maxReaders)}
}

// Register adds GET /kube to mux, the report as JSON.
func (p *Page) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+report.Path, p.bounded(p.json))
}

// bounded answers requests beyond the bound with 503.
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
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(p.report()) // the client went away
}
