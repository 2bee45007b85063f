package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client/admin"
)

func newUpgradeCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Show whether an upgrade is finalized, and finalize it",
		Long: `A feature level is the set of changes to the shard map that a version of the software
can write. Nodes of an older version cannot read a map of a newer level, so the features
of a new level stay disabled until an operator finalizes it. Until then every node can
return to the previous version.

Upgrade all nodes, make sure that no rollback is needed, then finalize:

  cachectl upgrade status      which level is final, and what each node understands
  cachectl upgrade finalize    enable the new level`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newUpgradeStatusCommand(s), newUpgradeFinalizeCommand(s))
	return cmd
}

func newUpgradeStatusCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show which feature level is final, and what each node understands",
		Args:  takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.clusterStatus(cmd, func(cs admin.ClusterStatus) error {
				if s.Structured() {
					return s.Document(levelsOf(cs).upgradeJSON)
				}
				return levelsOf(cs).print(s)
			})
		},
	}
}

func newUpgradeFinalizeCommand(s *session) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "finalize",
		Short: "Enable the feature level of the new version, permanently",
		Long: `finalize sets the cluster's feature level to the newest one that all nodes understand.
It enables the features of that level, and nodes with older software can no longer
join: they end with an error that names the level. The level cannot be lowered again.

finalize is refused while a member that has not left does not understand the level,
even if that member is dead. It asks for confirmation unless --yes is given. It does
nothing when the level is already final.

Exit codes: 0 done, or nothing to do; 1 refused, or not confirmed; 3 the level is final,
and shards still move.`,
		Example: `  cachectl upgrade finalize
  cachectl upgrade finalize --yes -o json`,
		Args: takes(),
	}
	c := newChanging(s, cmd, map[string]string{"level": "upgrade finalize"})
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var levels upgradeLevels
		if err := s.clusterStatus(cmd, func(cs admin.ClusterStatus) error {
			levels = levelsOf(cs)
			return nil
		}); err != nil {
			return err
		}
		if !yes && !c.options.DryRun && levels.CanFinalize {
			if err := levels.confirm(cmd.Context(), s); err != nil {
				return err
			}
		}
		c.done = fmt.Sprintf("feature level %d is final", max(levels.NewestLevel, levels.FinalizedLevel))
		return c.run(cmd, admin.FinalizeUpgrade{Level: levels.NewestLevel})
	}
	return cmd
}

// The JSON form of upgrade status; its field names are a promise.
type (
	upgradeJSON struct {
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
		Level   int    `json:"level"` // 0: not known
	}
	levelJSON struct {
		Level int    `json:"level"`
		Adds  string `json:"adds"`
	}
)

// upgradeLevels is how far an upgrade is.
type upgradeLevels struct {
	upgradeJSON
	lacking []string // members that do not understand the newest level
	outside []string // members that do not understand the finalized one
}

// levelsOf puts together what the members understand. Those that have left do not
// count.
func levelsOf(cs admin.ClusterStatus) upgradeLevels {
	u := upgradeLevels{upgradeJSON: upgradeJSON{FinalizedLevel: cs.Map.FeatureLevel, Members: []upgradeMemberJSON{}}}
	for _, m := range cs.Members {
		if m.Member.State != admin.MemberLeft {
			u.Members = append(u.Members, upgradeMemberJSON{m.Member.Name, stateOf(m.Member), m.Member.Version, m.Member.FeatureLevel})
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

// pending reports whether a member understands a level that is not final.
func (u upgradeLevels) pending() bool {
	return u.FinalizedLevel > 0 && u.NewestLevel > u.FinalizedLevel
}

// note says that an upgrade is not finalized; "" when it is.
func (u upgradeLevels) note() string {
	switch {
	case u.CanFinalize:
		return fmt.Sprintf("the upgrade to feature level %d is not finalized: cachectl upgrade status", u.NewestLevel)
	case u.pending():
		return fmt.Sprintf("an upgrade to feature level %d is under way, not yet on %s: cachectl upgrade status", u.NewestLevel, strings.Join(u.lacking, ", "))
	}
	return ""
}

// gain says what finalizing brings and costs.
func (u upgradeLevels) gain() (lines []string) {
	for _, l := range u.NewLevels {
		if l.Adds != "" {
			lines = append(lines, fmt.Sprintf("level %d adds: %s", l.Level, l.Adds))
		}
	}
	return append(lines, fmt.Sprintf("once level %d is final, nodes with older software cannot join any more", u.NewestLevel))
}

func (u upgradeLevels) print(s *session) error {
	t := &table{}
	t.row("NODE", "STATE", "VERSION", "UNDERSTANDS")
	for _, m := range u.Members {
		level := "-"
		if m.Level > 0 {
			level = fmt.Sprintf("level %d", m.Level)
		}
		t.row(m.Name, m.State, orDash(m.Version), level)
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
	if err := t.write(s.p.stdout); err != nil {
		return err
	}
	return s.printNotes(lines)
}

// confirm asks the operator.
func (u upgradeLevels) confirm(ctx context.Context, s *session) error {
	text := strings.Join(append([]string{fmt.Sprintf("feature level %d becomes final, level %d is", u.NewestLevel, u.FinalizedLevel)}, u.gain()...), "\n")
	if _, err := fmt.Fprint(s.p.stderr, text+"\nContinue? [yes/no] "); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	answer, _ := bufio.NewReader(s.p.stdin).ReadString('\n') // nothing is no
	if ctx.Err() != nil || strings.TrimSpace(answer) != "yes" {
		return errNotConfirmed
	}
	return nil
}
