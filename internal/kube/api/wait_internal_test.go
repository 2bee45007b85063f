package api

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kube/guard"
	"github.com/shardwatch/shardwatch/internal/kube/source"
)

// A request for a later version of Events does not wait: Events have no bookmarks, so that progress may never
// come.
func TestAVersionOfEventsIsNotWaitedFor(t *testing.T) {
	x := newFanned(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for group, want := range map[string]bool{"": true, "events.k8s.io": true, "example.com": false} {
		x.r = source.Resource{Group: group, Version: "v1", Name: "events"}
		a := &answer{f: x.feed}
		if err := a.waitProgress(ctx, 11); errors.Is(err, errUpstream) != want {
			t.Errorf("a later version of %s: %v", x.r, err)
		}
		if err := a.waitProgress(t.Context(), 10); err != nil {
			t.Errorf("the current version of %s: %v", x.r, err)
		}
	}
}

// Of the requests that wait for a resource, one receives its failure and drops the feed. The other requests then
// end without waiting for their timeout.
func TestRequestsOfADroppedFeedDoNotWait(t *testing.T) {
	upstream := source.Defaults()
	upstream.Servers, upstream.HTTP = []string{gone()}, &http.Client{}
	client, err := source.New(upstream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Defaults()
	cfg.Source, cfg.Guard, cfg.Upstream, cfg.Budget = client, &guard.Guard{}, http.NotFoundHandler(), budget.New(1<<20)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.feeds.run.Wait()
	defer s.stop()
	f := s.feeds.use(source.Resource{Version: "v1", Name: "things"})
	s.feeds.drop(f)
	if _, err := s.ready(t.Context(), f); !errors.Is(err, errNotFollowed) {
		t.Errorf("got %v", err)
	}
}
