package hostile_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/test/hostile"
)

// TestMain also runs an attacker's process.
func TestMain(m *testing.M) {
	if os.Getenv(hostile.AttackEnv) != "" {
		if err := hostile.Perform(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// few is a configuration for a run of some seconds.
func few(t *testing.T, attacks ...string) hostile.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("builds a node, starts etcd, and attacks for half a minute")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := hostile.Defaults()
	cfg.Attacks, cfg.Program, cfg.Dir, cfg.Say = attacks, []string{self}, t.TempDir(), t.Logf
	cfg.Rounds, cfg.Calm, cfg.Hot = 1, time.Second, 3*time.Second
	cfg.Watches, cfg.Keys = 50, 5_000
	cfg.Apart, cfg.Nice, cfg.Probe = false, 0, time.Minute // times are not judged
	return cfg
}

// A few attacks, briefly: the node stays alive and within its memory, and answers its probes. The
// crowd's delays are printed and never judged; `make hostile` is the long run.
func TestFewAttacks(t *testing.T) {
	cfg := few(t, "nested-txn", "long-keys", "lists-unread")
	cfg.Modes = cfg.Modes[1:] // with TLS and a policy, as in production
	report, err := hostile.Run(t.Context(), cfg)
	if terr := report.Text(os.Stdout); terr != nil {
		t.Error(terr)
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := len(cfg.Attacks); len(report.Rows) != want {
		t.Errorf("%d rows, want %d", len(report.Rows), want)
	}
	for _, row := range report.Rows {
		if row.Control.Watch == 0 || row.Control.Read == 0 || row.Control.Attacker == 0 {
			t.Errorf("%s, %s: the control measured nothing: %+v", row.Attack, row.Mode, row.Control)
		}
		if over := row.Unsafe(); len(over) > 0 {
			t.Errorf("%s, %s: %s (%s above rest; %s %s)", row.Attack, row.Mode, strings.Join(over, ", "), fmt.Sprint(row.Peak-row.Rest), row.Why, row.Did.Breach)
		}
	}
}

// An attack that exceeds a bound is reported.
func TestAnExceededBoundIsReported(t *testing.T) {
	cfg := few(t, "lists")
	cfg.Modes, cfg.MaxMemory = cfg.Modes[:1], 1<<20
	report, err := hostile.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if over := report.Exceeded(); len(over) != 1 || !strings.Contains(over[0], "lists, plain: memory") {
		t.Errorf("%d lists of 5 MiB with a bound of 1 MiB: %q", report.Rows[0].Did.Done["lists"], over)
	}
}

// A row can exceed each bound.
func TestExceeded(t *testing.T) {
	within := func() hostile.Row {
		r := hostile.Row{Attack: "lists", Mode: "plain", Rest: 100, Peak: 200, MaxMemory: 100, MaxRatio: 2, Probes: 1}
		r.Before.Watch, r.Before.Read, r.During.Watch, r.During.Read = 10, 10, 20, 20
		r.Did.Refused = map[string]int{"PermissionDenied": 1}
		return r
	}
	if r := within(); len(r.Exceeded()) > 0 {
		t.Errorf("a row within all bounds: %q", r.Exceeded())
	}
	for want, change := range map[string]func(*hostile.Row){
		"memory":           func(r *hostile.Row) { r.Peak++ },
		"watch p99":        func(r *hostile.Row) { r.During.Watch++ },
		"read p99":         func(r *hostile.Row) { r.During.Read++ },
		"probes":           func(r *hostile.Row) { r.Failed = 1 },
		"restart":          func(r *hostile.Row) { r.Restarts = 1 },
		"drain":            func(r *hostile.Row) { r.Drain = hostile.MaxDrain + 1 },
		"breach":           func(r *hostile.Row) { r.Did.Breach = "an alarm was set" },
		"nothing was done": func(r *hostile.Row) { r.Did.Refused = nil },
	} {
		r := within()
		change(&r)
		if got := r.Exceeded(); len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// All wrong settings are reported.
func TestValidate(t *testing.T) {
	cfg := hostile.Config{Attacks: []string{"nonsense"}, Modes: []string{"carrier pigeon"}, Nice: 21}
	err := cfg.Validate()
	for _, want := range []string{"--only", "nonsense", "--modes", "carrier pigeon", "--rounds", "--calm", "--watches", "--keys", "--nice"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	cfg = hostile.Defaults()
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}
