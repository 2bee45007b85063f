package gateway_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/gateway"
)

// Every request gets a JSON answer, and releases its memory afterwards.
func FuzzRequest(f *testing.F) {
	memory := budget.New(64 << 20)
	g, err := gateway.New(gateway.Config{MaxRequest: 1 << 20, Memory: memory})
	if err != nil {
		f.Fatal(err)
	}
	etcdserverpb.RegisterKVServer(g, backend{})
	for _, path := range []string{"range", "put", "txn", "deleterange", "none"} {
		for _, body := range []string{
			`{"key":"Zm9v","range_end":"AA==","limit":"5"}`, `{"compare":[{"key":"AA==","version":1}],"success":[{"request_range":{"key":"YQ=="}}]}`, `{"compare":[` + strings.Repeat("{},", 99) + `{}]}`,
			`{"key":`, `[]`, `{"key":"c2VjcmV0"}`, "", "null", `{"success":[{"request_txn":{"success":[{"request_put":{}}]}}]}`, `{"key":1,"Key":"x"}`,
		} {
			f.Add(path, body)
		}
	}
	f.Fuzz(func(t *testing.T, path, body string) {
		r := httptest.NewRequest(http.MethodPost, "/v3/kv/range", strings.NewReader(body))
		r.URL.Path = "/v3/kv/" + path
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusNotImplemented {
			t.Errorf("%s %q: %d %s", path, body, w.Code, w.Body)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %q: %s", path, body, w.Body)
		}
		if held := memory.Held(budget.JSON); held != 0 {
			t.Fatalf("%s %q: %d bytes are held", path, body, held)
		}
	})
}
