package port

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
)

// Large headers take memory from the budget while their request is served. A token takes memory for its review,
// too.
func TestLargeHeadersTakeMemoryFromTheBudget(t *testing.T) {
	cfg := Config{Budget: budget.New(16 << 20)} // 2 MiB for requests, half of it for one address
	serve := func(head int) (held int64, code int) {
		cfg.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { held = cfg.Budget.Held(budget.Requests) })
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Authorization", strings.Repeat("x", head))
		w := httptest.NewRecorder()
		cfg.serve(w, r)
		if left := cfg.Budget.Held(budget.Requests); left != 0 {
			t.Errorf("%d bytes of the budget are held after the request", left)
		}
		return held, w.Code
	}
	if held, code := serve(2_000); held != 0 || code != http.StatusOK {
		t.Errorf("small headers take %d bytes of the budget, want none; status %d", held, code)
	}
	if held, code := serve(50_000); held < 150_000 || held > 151_000 || code != http.StatusOK {
		t.Errorf("a token of 50,000 bytes takes %d bytes of the budget; status %d", held, code)
	}
	if err := cfg.Budget.Take(budget.Client{Name: "192.0.2.1", Max: budget.HalfOfTotal}, budget.Requests, 1<<20, 0); err != nil { // httptest's client address
		t.Fatal(err)
	}
	cfg.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was served without memory for it") })
	r, w := httptest.NewRequest(http.MethodGet, "/?"+strings.Repeat("x", 5_000), http.NoBody), httptest.NewRecorder()
	if cfg.serve(w, r); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("status %d, headers %v", w.Code, w.Header())
	}
}

// lastDeadline is a ResponseWriter that records its last deadline.
type lastDeadline struct {
	http.ResponseWriter
	at time.Time
}

// SetWriteDeadline is called by http.ResponseController.
func (d *lastDeadline) SetWriteDeadline(at time.Time) error {
	d.at = at
	return nil
}

// A client may read nothing for a while. After that, it has to read at a minimum rate.
func TestAPatientWriterHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &lastDeadline{ResponseWriter: httptest.NewRecorder()}
		w, began := NewPatient(d, 30*time.Second), time.Now()
		for i, c := range []struct{ after, want time.Duration }{
			{0, 30 * time.Second},                // 31 s for all of it
			{10 * time.Second, 32 * time.Second}, // less than 30 s from now on
			{31 * time.Second, 33 * time.Second},
		} {
			time.Sleep(c.after - time.Since(began))
			if n, err := w.Write(make([]byte, slowest)); n != slowest || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
			if got := d.at.Sub(began); got != c.want {
				t.Errorf("write %d: deadline after %v, want %v", i, got, c.want)
			}
		}
	})
}
