package keys

import (
	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

// Commands returns the commands that watch, read and write keys.
func Commands(s *cli.Session) []*cobra.Command {
	return []*cobra.Command{
		newWatchCommand(s), newListCommand(s), newCountCommand(s), newGetCommand(s), newPutCommand(s), newDelCommand(s), newWaitCommand(s), newExportCommand(s), newImportCommand(s),
	}
}
