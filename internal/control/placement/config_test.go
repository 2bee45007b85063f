package placement

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Every bound of the configuration is exact: the value at the bound is accepted, the
// next value is refused.
func TestBoundsOfTheConfig(t *testing.T) {
	voter := func() Config {
		c := Defaults()
		c.Name, c.UUID, c.Disk, c.Network, c.Address, c.BootstrapExpect = "n", "u", NewMemDisk(), new(MemNetwork), "n:1", 3
		c.Members = func() []shard.Member { return nil }
		c.FoundingFacts = func(context.Context) (uint64, []string, error) { return 0, nil, nil }
		c.Halve = func(context.Context, kv.Range) (string, error) { return "", nil }
		c.Reports = func(context.Context, []shard.NodeID) []planner.Report { return nil }
		c.Spec = shard.Spec{Ranges: []kv.Range{{}}, Shards: 4, Replicas: 2}
		return c
	}
	for name, test := range map[string]struct {
		change func(*Config)
		want   string // "": no mistake
	}{
		"defaults":                    {func(*Config) {}, ""},
		"one voter":                   {func(c *Config) { c.BootstrapExpect = 1 }, ""},
		"five voters":                 {func(c *Config) { c.BootstrapExpect = 5 }, ""},
		"four voters":                 {func(c *Config) { c.BootstrapExpect = 4 }, "must be 1, 3 or 5"},
		"no voter needs less":         {func(c *Config) { c.BootstrapExpect, c.Network, c.Address, c.FoundingFacts = 0, nil, "", nil }, ""},
		"no name":                     {func(c *Config) { c.Name = "" }, "no node name"},
		"no UUID":                     {func(c *Config) { c.UUID = "" }, "no node UUID"},
		"no members":                  {func(c *Config) { c.Members = nil }, "no source of members"},
		"no logger":                   {func(c *Config) { c.Logger = nil }, "no logger"},
		"no disk":                     {func(c *Config) { c.Disk = nil }, "no data directory"},
		"no listener":                 {func(c *Config) { c.Network = nil }, "needs a raft listener"},
		"no address":                  {func(c *Config) { c.Address = "" }, "needs a raft address"},
		"no etcd":                     {func(c *Config) { c.FoundingFacts = nil }, "needs a check of etcd"},
		"no replicas":                 {func(c *Config) { c.Spec.Replicas = 0 }, "replicas"},
		"short heartbeat":             {func(c *Config) { c.Heartbeat = 5 * time.Millisecond }, ""},
		"shorter heartbeat":           {func(c *Config) { c.Heartbeat = 5*time.Millisecond - 1 }, "heartbeat (4.999999ms) must be at least 5ms"},
		"shorter split check":         {func(c *Config) { c.SplitCheck = 0 }, "split check (0s) must be at least 5ms"},
		"shorter propose timeout":     {func(c *Config) { c.ProposeTimeout = 0 }, "propose timeout (0s) must be at least 5ms"},
		"fills unbounded":             {func(c *Config) { c.MaxFills, c.MaxNodeFills = 0, 0 }, ""},
		"fills below zero":            {func(c *Config) { c.MaxFills = -1 }, "bounds of newcomers (-1, 8) must not be negative"},
		"fills of a node below zero":  {func(c *Config) { c.MaxNodeFills = -1 }, "bounds of newcomers (256, -1) must not be negative"},
		"voters never replaced":       {func(c *Config) { c.ReplaceVoterAfter = 0 }, ""},
		"voters replaced before":      {func(c *Config) { c.ReplaceVoterAfter = -1 }, "a voter is replaced (-1ns) must not be negative"},
		"fills as long as promotion":  {func(c *Config) { c.FillTimeout = c.PromoteDelay }, ""},
		"fills shorter":               {func(c *Config) { c.FillTimeout = c.PromoteDelay - 1 }, "must not be shorter than promote delay"},
		"splits without a way to cut": {func(c *Config) { c.Balance.Split, c.Halve = true, nil }, "no way to cut a shard"},
		"no splits, no way to cut":    {func(c *Config) { c.Balance.Split, c.Halve = false, nil }, ""},
		"no reports, no way to cut":   {func(c *Config) { c.Balance.Split, c.Halve, c.Reports = true, nil, nil }, ""},
		"bad balance":                 {func(c *Config) { c.Balance.MaxShards = -1 }, "shards"},
		"nothing waits":               {func(c *Config) { c.Settle, c.DeadGrace, c.MoveInterval, c.PromoteDelay = 0, 0, 0, 0 }, ""},
		"settle below zero":           {func(c *Config) { c.Settle = -1 }, "must not be negative"},
		"grace below zero":            {func(c *Config) { c.DeadGrace = -1 }, "must not be negative"},
		"interval below zero":         {func(c *Config) { c.MoveInterval = -1 }, "must not be negative"},
		"promotion below zero":        {func(c *Config) { c.PromoteDelay = -1 }, "must not be negative"},
		"election as heartbeat":       {func(c *Config) { c.Election = c.Heartbeat }, ""},
		"election shorter":            {func(c *Config) { c.Election = c.Heartbeat - 1 }, "must not be shorter than heartbeat"},
		"barrier as its interval":     {func(c *Config) { c.BarrierTimeout = c.BarrierEvery }, ""},
		"barrier shorter":             {func(c *Config) { c.BarrierTimeout = c.BarrierEvery - 1 }, "must not be shorter than barrier interval"},
	} {
		c := voter()
		test.change(&c)
		err := c.Validate()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
