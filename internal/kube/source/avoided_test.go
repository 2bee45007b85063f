package source

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/object"
)

// A server that fails is reported as avoided until it answers, for a minute at most. One that
// refuses a request has answered.
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
			t.Errorf("a server that has refused is avoided: %v; order %v", c.Avoided("https://a"), c.Servers())
		}
		c.avoid("https://b", fmt.Errorf("a client went away: %w", context.Canceled))
		if c.Avoided("https://b") != nil {
			t.Error("a server is avoided after a request that was canceled")
		}
		c.avoid("https://b", &object.Status{Code: http.StatusServiceUnavailable})
		c.Avoid("https://elsewhere", io.EOF)
		if c.Avoided("https://a") != nil || CodeOf(c.Avoided("https://b")) != http.StatusServiceUnavailable || c.Avoided("https://elsewhere") != nil {
			t.Error("the server that has failed is not the one that is avoided")
		}
		time.Sleep(avoidedFor)
		if c.Avoided("https://b") != nil {
			t.Error("a server is reported as avoided for more than a minute")
		}
	})
}
