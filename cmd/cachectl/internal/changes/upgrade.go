package changes

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cluster"
)

func newUpgradeCommand(s *cli.Session) *cobra.Command {
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
		Args: cli.KnownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newUpgradeStatusCommand(s), newUpgradeFinalizeCommand(s))
	return cmd
}

func newUpgradeStatusCommand(s *cli.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the final feature level, and the level that each node supports",
		Args:  cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.ClusterStatus(cmd, func(cs admin.ClusterStatus) error {
				if s.Structured() {
					return s.Document(cluster.LevelsOf(cs).UpgradeJSON)
				}
				return cluster.LevelsOf(cs).Print(s)
			})
		},
	}
}

func newUpgradeFinalizeCommand(s *cli.Session) *cobra.Command {
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
		Args: cli.Takes(),
	}
	c := newChanging(s, cmd, map[string]string{"level": "upgrade finalize"})
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var levels cluster.UpgradeLevels
		if err := s.ClusterStatus(cmd, func(cs admin.ClusterStatus) error {
			levels = cluster.LevelsOf(cs)
			return nil
		}); err != nil {
			return err
		}
		if !yes && !c.options.DryRun && levels.CanFinalize {
			if err := levels.Confirm(cmd.Context(), s); err != nil {
				return err
			}
		}
		c.done = fmt.Sprintf("feature level %d is final", max(levels.NewestLevel, levels.FinalizedLevel))
		return c.run(cmd, admin.FinalizeUpgrade{Level: levels.NewestLevel})
	}
	return cmd
}
