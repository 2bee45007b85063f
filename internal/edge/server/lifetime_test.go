package server_test

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// --max-connection-age ends a client's connection.
func TestConnectionAge(t *testing.T) {
	if os.Getenv("CACHENODE_CLIENT_SERVER") == "grpc-go" {
		t.Skip("grpc-go's server ignores the age")
	}
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { c.MaxConnectionAge = 10 * time.Millisecond }})
	c, err := net.Dial("tcp", r.clients)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(deadline)) // so that a failing test ends
	f := http2.NewFramer(c, c)
	if _, err := c.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for {
		got, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("the connection did not end with GOAWAY: %v", err)
		}
		if g, ok := got.(*http2.GoAwayFrame); ok {
			if g.ErrCode != http2.ErrCodeNo {
				t.Errorf("GOAWAY %v", g.ErrCode)
			}
			return
		}
	}
}
