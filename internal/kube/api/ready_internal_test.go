package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kube/guard"
	"github.com/shardwatch/shardwatch/internal/kube/source"
)

// A node that is not ready reports why a resource cannot be loaded, in one line.
func TestNotReadyReportsTheReason(t *testing.T) {
	r := source.Resource{Version: "v1", Name: "things"}
	upstream := source.Defaults()
	upstream.Servers, upstream.HTTP = []string{gone(), gone()}, &http.Client{}
	client, err := source.New(upstream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Defaults()
	cfg.Source, cfg.Guard, cfg.Upstream, cfg.Budget, cfg.Preload = client, &guard.Guard{}, http.NotFoundHandler(), budget.New(1<<20), []source.Resource{r}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.feeds.run.Wait()
	defer s.stop()
	if why := s.NotReady(); len(why) != 1 || why[0] != r.String()+" is not loaded yet" {
		t.Errorf("before the first attempt to load: %q", why)
	}
	s.preload()
	for {
		why := strings.Join(s.NotReady(), "\n")
		if strings.Contains(why, "connection refused") {
			if strings.Contains(why, "\n") || !strings.HasPrefix(why, r.String()+" is not loaded yet: ") {
				t.Errorf("%q", why)
			}
			break
		}
		if t.Context().Err() != nil || !strings.Contains(why, "not loaded yet") {
			t.Fatalf("%q", why)
		}
		time.Sleep(time.Millisecond)
	}
}
