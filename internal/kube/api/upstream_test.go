package api

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kube/guard"
)

// gone returns the URL of a server that cannot be reached.
func gone() string {
	s := httptest.NewTLSServer(nil)
	s.Close()
	return s.URL
}

// answering returns the URL of an apiserver.
func answering(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewTLSServer(answer)
	t.Cleanup(s.Close)
	return s.URL
}

// A forwarded request takes memory for its response and its body from the budget. Watches have a separate share.
// Without enough memory, the client gets 429 and retries.
func TestAPassedRequestTakesMemoryFromTheBudget(t *testing.T) {
	const passBytes, bodyBytes = 80 << 10, 512 << 10
	b := budget.New(16 << 20) // 3 MiB for JSON, half of it for one client
	s := &Server{cfg: Config{Budget: b, Patience: time.Millisecond}}
	request := func(method, path string, body io.Reader) *http.Request {
		return guard.With(httptest.NewRequest(method, path, body), &guard.Identity{User: "a"})
	}
	for _, c := range []struct {
		r    *http.Request
		use  budget.Use
		want int64
	}{
		{request(http.MethodGet, "/api/v1/secrets", nil), budget.JSON, passBytes},
		{request(http.MethodGet, "/api/v1/secrets?watch=true", nil), budget.Watches, passBytes},
		{request(http.MethodPost, "/api/v1/secrets?watch=true", strings.NewReader("12345")), budget.JSON, passBytes + 5},
		{request(http.MethodPost, "/api/v1/secrets", struct{ io.Reader }{strings.NewReader("12345")}), budget.JSON, passBytes + bodyBytes},
		{request(http.MethodPut, "/api/v1/secrets", bytes.NewReader(make([]byte, 1<<20))), budget.JSON, passBytes + bodyBytes},
	} {
		s.cfg.Upstream = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if held := b.Held(c.use); held != c.want {
				t.Errorf("%s %s holds %d bytes of %v, want %d", c.r.Method, c.r.URL, held, c.use, c.want)
			}
		})
		s.pass(httptest.NewRecorder(), c.r)
		if held := b.Held(c.use); held != 0 {
			t.Errorf("%s %s holds %d bytes after its end", c.r.Method, c.r.URL, held)
		}
	}
	if err := b.Take(budget.Client{Name: "a", Max: budget.HalfOfTotal}, budget.JSON, 3<<19, 0); err != nil {
		t.Fatal(err)
	}
	s.cfg.Upstream = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was forwarded without memory for it") })
	w := httptest.NewRecorder()
	if s.pass(w, request(http.MethodGet, "/api/v1/secrets", nil)); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d, headers %v", w.Code, w.Header())
	}
}
