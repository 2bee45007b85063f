package chaos_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/test/chaos"
)

// A short run of a few faults with few watches. It prints times and never judges them; `make chaos`
// is the long run.
func TestFewFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an etcd and five nodes, and breaks them for a minute")
	}
	cfg := chaos.Defaults()
	possible, others := chaos.Possible()
	cfg.Faults = nil
	for _, f := range []string{"kill", "pause-2s", "cut-etcd", "newcomer", "rebuilt", "restore-older"} {
		if slices.Contains(possible, f) {
			cfg.Faults = append(cfg.Faults, f)
		} else {
			t.Logf("without %s: %v", f, others[f])
		}
	}
	cfg.Cycles = len(cfg.Faults)
	cfg.Watches, cfg.Clients, cfg.Joiners = 120, 4, 1
	cfg.Rate, cfg.MinRate = 150, 1 // a loaded machine must pass, too
	cfg.Keys = 50
	cfg.Duration, cfg.Short = 5*time.Second, 2
	cfg.Dir = t.TempDir()
	cfg.Say = t.Logf
	report, err := chaos.Run(t.Context(), cfg)
	if terr := report.Text(os.Stdout); terr != nil {
		t.Error(terr)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range slices.Concat(report.Failed(), report.Violations()) {
		t.Error(f)
	}
}
