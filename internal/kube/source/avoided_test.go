package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/object"
)

// A server that fails is reported as avoided until it answers, for a minute at most. A refusal is an answer.
func TestAvoidedServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Defaults()
		cfg.Servers, cfg.HTTP = []string{"https://a", "https://b"}, &http.Client{}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c.avoid("https://a", &object.Status{Code: http.StatusForbidden})
		if c.Avoided("https://a") != nil || c.Servers()[0] != "https://b" {
			t.Errorf("a server that refused a request is avoided because of: %v; order %v", c.Avoided("https://a"), c.Servers())
		}
		c.avoid("https://b", fmt.Errorf("a client went away: %w", context.Canceled))
		if c.Avoided("https://b") != nil {
			t.Error("a server is avoided after a request that was canceled")
		}
		c.avoid("https://b", &object.Status{Code: http.StatusServiceUnavailable})
		c.Avoid("https://elsewhere", io.EOF)
		if c.Avoided("https://a") != nil || CodeOf(c.Avoided("https://b")) != http.StatusServiceUnavailable || c.Avoided("https://elsewhere") != nil {
			t.Error("want only the failed server avoided, with its failure")
		}
		time.Sleep(avoidedFor)
		if c.Avoided("https://b") != nil {
			t.Error("a server is reported as avoided for more than a minute")
		}
	})
}

// transport answers requests.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// hanging returns a client of the servers a, which does not answer, and b, which does. asked receives the servers
// in the order of the requests.
func hanging(t *testing.T) (c *Client, asked *[]string) {
	t.Helper()
	asked = new([]string)
	cfg := Defaults()
	cfg.Servers = []string{"https://a", "https://b"}
	cfg.HTTP = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		if *asked = append(*asked, r.URL.Host); r.URL.Host == "a" {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		const answer = `{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"7","uid":"u"},"items":[]}`
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {object.JSON.MediaType()}}, Body: io.NopCloser(strings.NewReader(answer)), Request: r,
		}, nil
	})}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, asked
}

// If an apiserver accepts requests but does not answer, enough time remains for the next one, which is preferred
// from then on.
func TestAnApiserverThatHangsLeavesTimeForTheNext(t *testing.T) {
	things := Resource{Version: "v1", Name: "things"}
	for name, ask := range map[string]func(context.Context, *Client) error{
		"review": func(ctx context.Context, c *Client) error {
			_, err := c.Post(ctx, "/reviews", struct{}{}, &struct{}{})
			return err
		},
		"cluster": func(ctx context.Context, c *Client) error { _, err := c.Cluster(ctx); return err },
		"version": func(ctx context.Context, c *Client) error { _, err := c.Current(ctx, things); return err },
		"kind":    func(ctx context.Context, c *Client) error { _, err := c.KindOf(ctx, things); return err },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, asked := hanging(t)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if err := ask(ctx, c); err != nil || !slices.Equal(*asked, []string{"a", "b"}) {
				t.Errorf("%s: %v, asked servers %q, want a and b", name, err, *asked)
			}
			if c.Avoided("https://a") == nil || c.Avoided("https://b") != nil || c.Servers()[0] != "https://b" {
				t.Errorf("%s: a is avoided because of %v, and b because of %v; order %q; want only a avoided", name, c.Avoided("https://a"), c.Avoided("https://b"), c.Servers())
			}
		})
	}
}

// A request that its caller cancels, or that times out, does not count as a failure of an apiserver.
func TestACanceledRequestAvoidsNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, asked := hanging(t)
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		over, end := context.WithTimeout(t.Context(), 0)
		defer end()
		for _, ctx := range []context.Context{canceled, over} {
			if _, err := c.Post(ctx, "/reviews", struct{}{}, &struct{}{}); err == nil || !errors.Is(err, ctx.Err()) {
				t.Errorf("got %v, want %v", err, ctx.Err())
			}
		}
		if !slices.Equal(*asked, []string{"a"}) || c.Avoided("https://a") != nil || c.Servers()[0] != "https://a" {
			t.Errorf("asked servers %q; a is avoided because of %v; order %q", *asked, c.Avoided("https://a"), c.Servers())
		}
	})
}
