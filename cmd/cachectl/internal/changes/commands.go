package changes

import (
	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// Commands returns the commands that change the shard map and the settings of the cluster.
func Commands(s *cli.Session) []*cobra.Command {
	return []*cobra.Command{
		newSplitCommand(s), newMergeCommand(s), newMoveCommand(s), newDrainCommand(s), newUndrainCommand(s), newRebalanceCommand(s), newUpgradeCommand(s), newSettingsCommand(s),
	}
}
