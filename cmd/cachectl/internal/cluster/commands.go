package cluster

import (
	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// Commands returns the commands that show the cluster, and restore its history and voters.
func Commands(s *cli.Session) []*cobra.Command {
	return []*cobra.Command{
		newMembersCommand(s), newVotersCommand(s), newShardsCommand(s), newStatusCommand(s), newWatchersCommand(s), newTopCommand(s), newTraceCommand(s), newLineageCommand(s), newVerifyCommand(s), newVersionCommand(s),
	}
}
