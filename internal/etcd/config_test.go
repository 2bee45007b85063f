package etcd

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func testConfig(endpoints ...string) Config {
	cfg := Defaults()
	cfg.Endpoints = endpoints
	cfg.Logger = slog.New(slog.DiscardHandler)
	return cfg
}

func TestValidateNamesEveryMistake(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   []string // empty: no error
	}{
		{"defaults", func(*Config) {}, nil},
		{"schemes", func(c *Config) { c.Endpoints = []string{"http://a:1", "b:2"} }, nil},
		{"secure", func(c *Config) {
			c.Endpoints = []string{"https://a:1", "[::1]:2379"}
			c.TLS = func() *tls.Config { return &tls.Config{} }
		}, nil},
		{"no endpoint", func(c *Config) { c.Endpoints = nil }, []string{"--etcd: name at least one"}},
		{"no port", func(c *Config) { c.Endpoints = []string{"localhost"} }, []string{`--etcd: "localhost": use host:port`}},
		{"no host", func(c *Config) { c.Endpoints = []string{":2379"} }, []string{`--etcd: ":2379": the host is missing`}},
		{"port", func(c *Config) { c.Endpoints = []string{"a:0"} }, []string{`port "0" is not a number`}},
		{"scheme", func(c *Config) { c.Endpoints = []string{"unix:///x"} }, []string{`scheme "unix" is not known`}},
		{"path", func(c *Config) { c.Endpoints = []string{"http://a:1/v3"} }, []string{"no path"}},
		{"twice", func(c *Config) { c.Endpoints = []string{"a:1", "http://a:1"} }, []string{"are the same endpoint"}},
		{"mixed", func(c *Config) { c.Endpoints = []string{"https://a:1", "http://b:1"} }, []string{`"https://a:1" is encrypted and "http://b:1" is not`}},
		{"http with certificates", func(c *Config) {
			c.Endpoints = []string{"http://a:1"}
			c.TLS = func() *tls.Config { return &tls.Config{} }
		}, []string{"use https"}},
		{"many at once", func(c *Config) {
			c.Endpoints, c.Password, c.PageKeys, c.Logger = []string{"x", "y"}, "p", 0, nil
			c.ProgressCoalesce, c.SilenceLimit = time.Second, time.Millisecond
			c.KeepaliveTime = time.Second
		}, []string{`"x"`, `"y"`, "needs a user name", "pages:", "logger", "coalescing", "silence limit", "keepalive time"}},
		{"no password", func(c *Config) { c.Username = "u" }, []string{`user "u" needs a password`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig("127.0.0.1:2379")
			c.change(&cfg)
			err := cfg.Validate()
			if (err != nil) != (len(c.want) > 0) {
				t.Fatalf("Validate: %v", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not mention %q", err, w)
				}
			}
		})
	}
}

func TestNextPage(t *testing.T) {
	for _, c := range []struct {
		n, bytes, maxKeys, maxBytes int
		want                        int64
	}{
		{16, 16 * 100, 10_000, 4 << 20, 128},            // small keys: grow, but not at once
		{5000, 5000 * 100, 10_000, 4 << 20, 10_000},     // the limit in keys
		{16, 16 << 20, 10_000, 4 << 20, 3},              // large values: shrink
		{1, 100 << 20, 10_000, 4 << 20, 1},              // at least one key
		{10_000, 0, 100_000, 4 << 20, 80_000},           // keys only
		{10_000, 10_000 * 1000, 100_000, 4 << 20, 4064}, // the limit in bytes
	} {
		if got := nextPage(c.n, c.bytes, c.maxKeys, c.maxBytes); got != c.want {
			t.Errorf("nextPage(%d, %d, %d, %d) = %d, want %d", c.n, c.bytes, c.maxKeys, c.maxBytes, got, c.want)
		}
	}
}
