package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

func newConfigCommand(p process) *cobra.Command {
	s := newSettings(p)
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the configuration that 'run' would use",
		Long: `Show the configuration that 'cachenode run' would use with the same flags,
environment and file, as YAML for --config. Each setting that is not the default
has its source. Passwords and keys are in separate files and are not shown.

` + settingsHelp + `

Exit codes: 0 the configuration is good, 2 it is not: the mistakes are on
standard error.`,
		Example: `  # Check a file before its rollout
  cachenode config --config node.yaml

  # Create a file
  cachenode config --data-dir /var/lib/shardwatch --bootstrap-expect 3 --insecure > node.yaml`,
		Args: noArgs,
	}
	s.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if all, _ := cmd.Flags().GetBool(config.HelpAllFlag); all {
			return cmd.Help()
		}
		l, err := s.read(cmd)
		return errors.Join(config.Print(p.stdout, cmd.Flags(), l), err)
	}
	return cmd
}
