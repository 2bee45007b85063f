package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// The JSON form of upgrade status; its field names are stable.
type (
	UpgradeJSON struct {
		FinalizedLevel int                 `json:"finalized_level"`
		NewestLevel    int                 `json:"newest_level"`
		CanFinalize    bool                `json:"can_finalize"`
		Members        []upgradeMemberJSON `json:"members"`
		NewLevels      []levelJSON         `json:"new_levels,omitempty"`
	}
	upgradeMemberJSON struct {
		Name    string `json:"name"`
		State   string `json:"state"`
		Version string `json:"version,omitempty"`
		Level   int    `json:"level"` // 0: unknown
	}
	levelJSON struct {
		Level int    `json:"level"`
		Adds  string `json:"adds"`
	}
)

// UpgradeLevels is the progress of an upgrade.
type UpgradeLevels struct {
	UpgradeJSON
	lacking []string // members that do not understand the newest level
	outside []string // members that do not understand the finalized one
}

// LevelsOf collects the levels that the members support. Members that have left do not
// count.
func LevelsOf(cs admin.ClusterStatus) UpgradeLevels {
	u := UpgradeLevels{UpgradeJSON: UpgradeJSON{FinalizedLevel: cs.Map.FeatureLevel, Members: []upgradeMemberJSON{}}}
	for _, m := range cs.Members {
		if m.Member.State != admin.MemberLeft {
			u.Members = append(u.Members, upgradeMemberJSON{m.Member.Name, cli.StateOf(m.Member), m.Member.Version, m.Member.FeatureLevel})
			u.NewestLevel = max(u.NewestLevel, m.Member.FeatureLevel)
		}
		if m.Status == nil {
			continue
		}
		for _, l := range m.Status.NewLevels {
			known := slices.ContainsFunc(u.NewLevels, func(k levelJSON) bool { return k.Level == l.Level })
			if !known && l.Level > u.FinalizedLevel {
				u.NewLevels = append(u.NewLevels, levelJSON(l))
			}
		}
	}
	slices.SortFunc(u.NewLevels, func(a, b levelJSON) int { return a.Level - b.Level })
	for _, m := range u.Members {
		if m.Level < u.NewestLevel {
			u.lacking = append(u.lacking, m.Name)
		}
		if m.Level < u.FinalizedLevel {
			u.outside = append(u.outside, m.Name)
		}
	}
	u.CanFinalize = u.pending() && len(u.lacking) == 0
	return u
}

// pending reports whether a member understands a newer level than the final one.
func (u UpgradeLevels) pending() bool {
	return u.FinalizedLevel > 0 && u.NewestLevel > u.FinalizedLevel
}

// note reports an upgrade that is not finalized; "": there is none.
func (u UpgradeLevels) note() string {
	switch {
	case u.CanFinalize:
		return fmt.Sprintf("the upgrade to feature level %d is not finalized: cachectl upgrade status", u.NewestLevel)
	case u.pending():
		return fmt.Sprintf("an upgrade to feature level %d is under way, not yet on %s: cachectl upgrade status", u.NewestLevel, strings.Join(u.lacking, ", "))
	}
	return ""
}

// gain returns the gain and the cost of finalizing.
func (u UpgradeLevels) gain() (lines []string) {
	for _, l := range u.NewLevels {
		if l.Adds != "" {
			lines = append(lines, fmt.Sprintf("level %d adds: %s", l.Level, l.Adds))
		}
	}
	return append(lines, fmt.Sprintf("once level %d is final, nodes with older software cannot join any more", u.NewestLevel))
}

// Print prints the levels, and the remaining steps.
func (u UpgradeLevels) Print(s *cli.Session) error {
	t := &cli.Table{}
	t.Row("NODE", "STATE", "VERSION", "UNDERSTANDS")
	for _, m := range u.Members {
		level := "-"
		if m.Level > 0 {
			level = fmt.Sprintf("level %d", m.Level)
		}
		t.Row(m.Name, m.State, cli.OrDash(m.Version), level)
	}
	lines := []string{fmt.Sprintf("feature level %d is final", u.FinalizedLevel)}
	switch {
	case u.FinalizedLevel == 0:
		lines = []string{"the node does not report the final feature level: its software is older than level 5"}
	case u.CanFinalize:
		lines = append(lines, u.gain()...)
		lines = append(lines, fmt.Sprintf("all nodes understand level %d, and can return to the previous version until you run cachectl upgrade finalize", u.NewestLevel))
	case u.pending():
		lines = append(lines, u.gain()...)
		lines = append(lines, fmt.Sprintf("before level %d can be final, upgrade %s", u.NewestLevel, strings.Join(u.lacking, ", ")))
	case len(u.outside) > 0:
		lines = append(lines, fmt.Sprintf("%s cannot take part until upgraded", strings.Join(u.outside, ", ")))
	default:
		lines = append(lines, "nothing is left to finalize")
	}
	if err := t.Write(s.Process.Stdout); err != nil {
		return err
	}
	return cli.Lines(s.Process.Stdout, lines...)
}

// Confirm asks the operator for confirmation.
func (u UpgradeLevels) Confirm(ctx context.Context, s *cli.Session) error {
	text := strings.Join(append([]string{fmt.Sprintf("feature level %d becomes final, in place of level %d", u.NewestLevel, u.FinalizedLevel)}, u.gain()...), "\n")
	return s.Confirm(ctx, text+"\n")
}
