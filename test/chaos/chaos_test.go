package chaos_test

import (
	"os"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/test/chaos"
)

// A short run of every fault with few watches. What it takes in time is
// printed and never judged; `make chaos` is the long one.
func TestEveryFaultOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an etcd and three nodes, and breaks them for a minute")
	}
	cfg := chaos.Defaults()
	cfg.Faults = chaos.FaultNames()
	cfg.Cycles = len(cfg.Faults)
	cfg.Watches, cfg.Clients = 120, 4
	cfg.Rate, cfg.MinRate = 150, 1 // a loaded machine must pass, too
	cfg.Keys, cfg.Big = 50, 1
	cfg.Duration, cfg.Away, cfg.Asleep = 6*time.Second, 2*time.Second, 5*time.Second
	cfg.Dir = t.TempDir()
	cfg.Say = t.Logf
	report, err := chaos.Run(t.Context(), cfg)
	if terr := report.Table(os.Stdout); terr != nil {
		t.Error(terr)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Failed() {
		t.Error(f)
	}
	for _, v := range report.Violations {
		t.Error(v)
	}
}
