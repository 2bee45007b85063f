package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/websocket"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kube/guard"
	"github.com/shardwatch/shardwatch/internal/kube/source"
)

// Events have no bookmarks: nothing would come that a request could wait for.
func TestAVersionOfEventsIsNotWaitedFor(t *testing.T) {
	x := newFanned(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for group, want := range map[string]bool{"": true, "events.k8s.io": true, "example.com": false} {
		x.r = source.Resource{Group: group, Version: "v1", Name: "events"}
		a := &answer{f: x.feed}
		if err := a.waitProgress(ctx, 11); errors.Is(err, errUpstream) != want {
			t.Errorf("a version of %s that is not here: %v", x.r, err)
		}
		if err := a.waitProgress(t.Context(), 10); err != nil {
			t.Errorf("a version of %s that is here: %v", x.r, err)
		}
	}
}

// A failure comes to one of the requests that wait for a resource. It drops the feed, and the
// others do not wait for their whole time.
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

func TestEachEventIsAMessageOfItsOwn(t *testing.T) {
	server := httptest.NewServer(websocket.Server{Handler: func(conn *websocket.Conn) {
		s := &socket{conn: conn}
		if n, err := s.Write([]byte("{\"a\":1}\n{\"b\":2}\n")); n != 16 || err != nil {
			t.Errorf("wrote %d: %v", n, err)
		}
	}})
	defer server.Close()
	conn, err := websocket.Dial("ws"+strings.TrimPrefix(server.URL, "http"), "", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, want := range []string{"{\"a\":1}\n", "{\"b\":2}\n"} {
		var got string
		if err := websocket.Message.Receive(conn, &got); err != nil || got != want {
			t.Errorf("got %q, want %q: %v", got, want, err)
		}
	}
}
