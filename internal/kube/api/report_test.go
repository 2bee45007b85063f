package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/report"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// flaky is an apiserver with two objects, and a resource whose list never ends. It works, fails, works again, and
// hangs.
type flaky struct {
	url   string
	phase atomic.Int32
	// cut breaks the watches of phase 0, end ends the watches of phase 2.
	cut, end chan struct{}
}

func newFlaky(t *testing.T) *flaky {
	t.Helper()
	x := &flaky{cut: make(chan struct{}), end: make(chan struct{})}
	x.url = answering(t, func(w http.ResponseWriter, r *http.Request) {
		cut, end := x.cut, (<-chan struct{})(nil)
		switch phase := x.phase.Load(); {
		case phase == 1:
			w.WriteHeader(http.StatusInternalServerError)
			return
		case phase == 3, strings.HasSuffix(r.URL.Path, "/slow"):
			<-r.Context().Done()
			return
		case phase == 2:
			cut, end = nil, x.end
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, `{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"20"},"items":[]}`)
			return
		}
		var out []byte
		if r.URL.Query().Get("sendInitialEvents") != "" {
			for i := range 2 {
				out = object.AppendEvent(out, object.JSON, object.Added, fmt.Appendf(nil, `{"kind":"Thing","apiVersion":"v1","metadata":{"name":"secret-%d","resourceVersion":"1%d"}}`, i, i))
			}
		}
		out = object.AppendEvent(out, object.JSON, object.Bookmark, object.NewBookmark(object.JSON, "v1", "Thing", 20, true))
		_, _ = w.Write(out)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-end:
		case <-cut:
			panic(http.ErrAbortHandler)
		}
	})
	return x
}

// reported waits until the report meets a condition.
func reported(t *testing.T, s *Server, what string, is func(*report.Report) bool) (out report.Report) {
	t.Helper()
	testkit.Succeeds(t, what, func() error {
		sent, err := json.Marshal(s.Report())
		if err != nil {
			return err
		}
		out = report.Report{}
		if err := json.Unmarshal(sent, &out); err != nil {
			return err
		}
		if !is(&out) {
			return fmt.Errorf("the report is %s", sent)
		}
		return nil
	})
	return out
}

// The report of a node follows a resource through a failure of its apiserver.
func TestTheReportOfANode(t *testing.T) {
	x := newFlaky(t)
	s := before(t, x.url, func(cfg *Config) { cfg.Node, cfg.Zone = "a", "z" })
	front := httptest.NewServer(s)
	defer front.Close()
	ask := func(path string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer a")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	first := reported(t, s, "nothing is followed", func(*report.Report) bool { return true })
	if want := (report.Report{
		Node: "a", Version: first.Version, Zone: "z", Started: first.Started, Apiservers: []report.Apiserver{{URL: x.url}}, Resources: []report.Resource{},
	}); !reflect.DeepEqual(first, want) || first.Version == "" || first.Started.IsZero() {
		t.Errorf("report of a node without resources: %+v", first)
	}
	watch := ask("/apis/example.com/v1/things?watch=1")
	defer watch.Body.Close()
	q, _ := parse(get("/apis/example.com/v1/slow", ""))
	q.resource.Encoding = object.JSON
	s.feeds.use(q.resource).release()
	ready := reported(t, s, "two resources, one with a watch", func(r *report.Report) bool {
		return len(r.Resources) == 2 && r.Resources[1].Watches == 1
	})
	things := ready.Resources[1]
	if want := (report.Resource{
		Name: "things.v1.example.com", Encoding: "json", State: report.Ready, From: x.url, Objects: 2, Bytes: things.Bytes, Floor: 21, Progress: 20, Watches: 1,
	}); things != want || things.Bytes <= 0 || ready.Apiservers[0].Avoided {
		t.Errorf("report of a followed resource: %+v, want %+v; apiservers %+v", things, want, ready.Apiservers)
	}
	if want := (report.Resource{Name: "slow.v1.example.com", Encoding: "json", State: report.Loading}); ready.Resources[0] != want {
		t.Errorf("report of a loading resource: %+v, want %+v", ready.Resources[0], want)
	}
	metrics := scrape(t, s)
	for _, figure := range []string{"objects{%s} 2", "watches{%s} 1", "window_losses_total{%s} 0", "held_bytes{%s} " + fmt.Sprint(things.Bytes)} {
		if want := "shardwatch_kube_" + fmt.Sprintf(figure, `encoding="json",resource="things.v1.example.com"`) + "\n"; !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
	if strings.Contains(metrics, "slow") {
		t.Error("the metrics include a resource that was never loaded")
	}
	x.phase.Store(1)
	close(x.cut)
	failing := reported(t, s, "the apiserver fails", func(r *report.Report) bool { return r.Resources[1].State == report.Failing })
	if got := failing.Resources[1]; got.Objects != 2 || got.From != "" || got.Error == "" || !failing.Apiservers[0].Avoided || failing.Apiservers[0].Error == "" {
		t.Errorf("report while the apiserver fails: %+v, apiservers %+v", got, failing.Apiservers)
	}
	x.phase.Store(2)
	healed := reported(t, s, "the apiserver works again", func(r *report.Report) bool {
		return r.Resources[1].State == report.Ready && !r.Apiservers[0].Avoided
	})
	if got := healed.Resources[1]; got.Error != "" || got.From != x.url {
		t.Errorf("report after the apiserver works again: %+v", got)
	}
	x.phase.Store(3)
	close(x.end)
	ended := reported(t, s, "the watch's time is over", func(r *report.Report) bool { return r.Resources[1].From == "" })
	if got := ended.Resources[1]; got.State != report.Ready || got.Error != "" {
		t.Errorf("report between two watches: %+v", got)
	}
}

// scrape returns the metrics of a server.
func scrape(t *testing.T, s *Server) string {
	t.Helper()
	tel, err := telemetry.New(telemetry.Config{ServiceName: "cachenode", Node: "a", Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Register(tel.Meter("kube")); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	tel.Handler(nil, nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return w.Body.String()
}
