package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/version"
)

// levels are the feature levels of the protocols between nodes.
type levels struct {
	// Map is the newest supported feature level of shard maps and of raft's commands
	// and snapshots.
	Map int `json:"map"`
}

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version and build information",
		Long: `Show the version, the commit of the build, and the newest feature level of shard maps
and raft commands that this version writes and understands. Nodes of different versions
work together until a feature is written that the older ones do not understand. See
docs/upgrade.md.`,
		Args: noArgs,
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`format`: text or json")
	completeWith(cmd, "output", "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		info, l := version.Get(), levels{Map: shard.Level}
		switch output {
		case "text":
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionText(info, l))
			return err
		case "json":
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(struct {
				version.Info
				Levels levels `json:"levels"`
			}{info, l})
		}
		return &usageError{cmd.CommandPath(), fmt.Errorf("--output %q: use text or json", output)}
	}
	return cmd
}

// versionText returns the version as text.
func versionText(info version.Info, l levels) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cachenode %s %s %s\n", info.Version, info.Go, info.Platform)
	if info.Commit != "" {
		fmt.Fprintf(&b, "  commit  %s, %s\n", info.Commit, info.Date)
	}
	if info.Tags != "" {
		fmt.Fprintf(&b, "  tags    %s\n", info.Tags)
	}
	fmt.Fprintf(&b, "  levels  shard map %d\n", l.Map)
	return b.String()
}
