package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// helpWidth is the width of --help's lines, in columns.
const helpWidth = 100

// localFlags is the part of cobra's template that describes the flags of a command.
const localFlags = `{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}{{end}}`

func newRoot(p process) *cobra.Command {
	root := &cobra.Command{
		Use:   "cachenode",
		Short: "A cache node between etcd and many watchers",
		Long: `cachenode keeps a replicated cache of etcd and serves any number of watches and lists
from memory. etcd serves only one watch per key range.

Start with a self-contained cluster:

  cachenode dev --demo`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2 // for knownCommand: cobra would set it too late
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{cmd.CommandPath(), config.ExplainFlagError(cmd.Flags(), err)}
	})
	usage := strings.ReplaceAll(root.UsageTemplate(), "FlagUsages |", fmt.Sprintf("FlagUsagesWrapped %d |", helpWidth))
	root.SetUsageTemplate(usage)
	root.AddCommand(newRunCommand(p), newDevCommand(p), newConfigCommand(p), newPolicyCommand(p), newVersionCommand())
	return root
}

// knownCommand returns an error for an unknown command.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	message := fmt.Sprintf("unknown command %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return &usageError{cmd.CommandPath(), errors.New(message)}
}

// noArgs rejects arguments that are not flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &usageError{cmd.CommandPath(), fmt.Errorf("unexpected argument %q: all settings are flags", args[0])}
}
