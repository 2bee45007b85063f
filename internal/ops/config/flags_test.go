package config_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// The help shows every setting in one group, and flags for experts only if asked to.
func TestUsagesShowGroups(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	c := config.Defaults()
	c.Flags(fs)
	few, all := config.Usages(fs, false, 100), config.Usages(fs, true, 100)
	if strings.Contains(few, "--tombstone-bytes ") || !strings.Contains(all, "\n\nExpert flags:\n") || strings.Contains(all, "Other flags") {
		t.Errorf("without flags for experts:%s\nwith:%s", few, all)
	}
	fs.VisitAll(func(f *pflag.Flag) {
		shown := strings.Count(all, "\n      --"+f.Name+" ")
		if shown != 1 {
			t.Errorf("--%s is shown %d times", f.Name, shown)
		}
	})
	for _, basic := range []string{"--data-dir", "--tls-cert", "--max-connections", "--auto-split"} {
		if !strings.Contains(few, basic+" ") {
			t.Errorf("%s is not shown", basic)
		}
	}
}
