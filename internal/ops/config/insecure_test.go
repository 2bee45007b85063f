package config_test

import (
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// Ports that other machines reach must be protected, or be accepted as open.
func TestOpenPortsAreSpelledOut(t *testing.T) {
	files := func(c *config.Config) {
		f := testFile(t)
		c.ClientTLS.Cert, c.ClientTLS.Key = f, f
		c.PeerTLS.Cert, c.PeerTLS.Key, c.PeerTLS.CA = f, f, f
		c.HTTPTLS.Cert, c.HTTPTLS.Key = f, f
		c.GossipKeyFile = gossipKeys(t)
	}
	all := []string{"--listen :7400 ", "--peer-listen :7401 ", "--raft-listen :7402 ", "--gossip-listen :7946 ", "--http-listen :7480 "}
	for name, c := range map[string]struct {
		change func(*config.Config)
		wrong  []string
		warned []string
	}{
		"nothing is protected": {func(*config.Config) {}, all, nil},
		"all is":               {files, nil, nil},
		"all but HTTP":         {func(c *config.Config) { files(c); c.HTTPTLS.Cert, c.HTTPTLS.Key = "", "" }, all[4:], nil},
		"HTTP is open": {func(c *config.Config) {
			files(c)
			c.HTTPTLS.Cert, c.HTTPTLS.Key, c.Insecure = "", "", config.Ports{"http"}
		}, nil, all[4:]},
		"the wrong one is": {func(c *config.Config) { c.Insecure = config.Ports{"peer", "gossip"} }, []string{all[0], all[4]}, nil},
		"all is open":      {func(c *config.Config) { _ = c.Insecure.Set("all") }, nil, all},
		"loopback": {func(c *config.Config) {
			for _, l := range []*string{&c.Listen.Client, &c.Listen.Peer, &c.Listen.Raft, &c.Listen.Gossip, &c.Listen.HTTP} {
				*l = "127.0.0.1" + *l
			}
			c.Listen.HTTP = "[::1]:7480"
		}, nil, nil},
		"an address of the machine": {func(c *config.Config) {
			files(c)
			c.GossipKeyFile, c.Listen.Gossip = "", "10.0.0.1:7946"
		}, []string{"--gossip-listen 10.0.0.1:7946 is reachable from other machines without protection: give --gossip-key-file, listen on 127.0.0.1, or accept it with --insecure=gossip"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := valid(t)
			cfg.Insecure = nil
			c.change(&cfg)
			var wrong, warned []string
			if err := cfg.Validate(); err != nil {
				wrong = strings.Split(err.Error(), "\n")
			} else {
				for _, w := range cfg.Warnings() {
					if strings.Contains(w, "--insecure") {
						warned = append(warned, w)
					}
				}
			}
			match(t, "refused", wrong, c.wrong)
			match(t, "warned", warned, c.warned)
		})
	}
}

// match compares lines with their prefixes.
func match(t *testing.T, what string, lines, want []string) {
	t.Helper()
	if len(lines) != len(want) {
		t.Fatalf("%s: %d lines, want %d:\n%s", what, len(lines), len(want), strings.Join(lines, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("%s: %q does not begin with %q", what, lines[i], want[i])
		}
	}
}

func TestPortsAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]string{
		"all": "client,peer,gossip,http", "true": "client,peer,gossip,http", "http": "http", "http,peer,http": "http,peer",
		"none": "", "false": "", "": "",
	} {
		var p config.Ports
		if err := p.Set(text); err != nil || p.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, p.String(), err, want)
		}
	}
	var p config.Ports
	if err := p.Set("raft"); err == nil || !strings.Contains(err.Error(), `"raft" is not a port: use client, peer, gossip, http, or all`) {
		t.Errorf("raft: %v", err)
	}
}
