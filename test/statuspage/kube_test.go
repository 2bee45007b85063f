package statuspage

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/page"
	"github.com/shardwatch/shardwatch/internal/kube/report"
)

// The page of a node that serves Kubernetes' API is renewed while it is open, and says so when the node
// does not answer any more.
func TestThePageOfANodeForKubernetes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	browser(t)
	var watches atomic.Int64
	mux := http.NewServeMux()
	page.New(func() report.Report {
		return report.Report{
			Node: "a", Version: "v1", Started: time.Now(), Apiservers: []report.Apiserver{{URL: "https://one:6443", Avoided: true, Error: "refused"}},
			Resources: []report.Resource{
				{Name: "pods.v1", Encoding: "json", State: report.Ready, Watches: watches.Load()}, {Name: "nodes.v1", State: report.Failing, Error: "refused"},
			},
		}
	}).Register(mux, true)
	node := httptest.NewServer(mux)
	defer node.Close()
	p := open(t, node.URL+"/")
	p.until(`document.querySelector("#live").dataset.live === "on"`)
	watches.Store(4711)
	p.until(`document.querySelector("#resources").innerText.includes("4711")`)
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		if bad := eval[string](p, contrast); bad != "" {
			t.Errorf("hard to read in %s: %s", scheme, bad)
		}
	}
	p.picture("kube")
	node.Close()
	p.until(`document.querySelector("#live").dataset.live === "lost"`)
	if !eval[bool](p, `document.querySelector("#resources").innerText.includes("4711")`) {
		t.Error("what was known is not shown any more")
	}
}
