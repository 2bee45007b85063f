package telemetry

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of /metrics: excess concurrent scrapes, and longer ones, get 503.
const (
	maxScrapes    = 4
	scrapeTimeout = 20 * time.Second
)

// Handler serves
//
//   - /metrics, for Prometheus;
//   - /healthz: 200 while the process works, or 503 with the reason to restart it;
//   - /readyz: 200, or 503 with one line per reason; as JSON when the request
//     accepts application/json;
//   - /debug/pprof/, if the configuration enables it.
//
// ready returns the reasons why the node is not ready, none if it is ready. It is called with each request and
// must not block. nil: always ready. stuck returns why the process must be restarted, "" while it works; nil:
// not checked.
func (t *Telemetry) Handler(ready func() []string, stuck func() string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		// One broken metric must not hide the others.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	}))
	// Anyone may send probes, as often as connections allow: each connection carries one.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		if stuck != nil {
			if why := stuck(); why != "" {
				writeText(w, http.StatusServiceUnavailable, why)
				return
			}
		}
		writeText(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		var reasons []string
		if ready != nil {
			reasons = ready()
		}
		serveReady(w, r, reasons)
	})
	if t.cfg.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// readiness is the JSON answer of /readyz.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
}

func serveReady(w http.ResponseWriter, r *http.Request, reasons []string) {
	lines := make([]string, 0, len(reasons))
	for _, reason := range reasons {
		// A joined error has several lines; answers have one line per reason.
		lines = append(lines, strings.ReplaceAll(strings.TrimSpace(reason), "\n", "; "))
	}
	status := http.StatusOK
	if len(lines) > 0 {
		status = http.StatusServiceUnavailable
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(readiness{Ready: len(lines) == 0, Reasons: lines}) // the client went away
		return
	}
	if len(lines) == 0 {
		lines = []string{"ready"}
	}
	writeText(w, status, strings.Join(lines, "\n"))
}

func writeText(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, s+"\n") // the client went away
}
