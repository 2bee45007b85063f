//go:build !nodev

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

func newDevCommand(p process) *cobra.Command {
	dev := config.DevDefaults()
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cluster with its own etcd on this machine",
		Long: `Run cache nodes and a private etcd in one process, on 127.0.0.1 only, for trials and
development. The ports have no TLS and no authentication.

With --data-dir the data is kept for the next start; without it, the data is removed at
the end. Ctrl-C stops the cluster.`,
		Example: `  # Three nodes, with something to watch
  cachenode dev --demo
  cachectl watch --prefix /demo/

  # Next to an etcd that uses port 2379
  cachenode dev --etcd-port 12379`,
		Args: noArgs,
	}
	cmd.Flags().SortFlags = false
	dev.Flags(cmd.Flags())
	completeWith(cmd, "log-level", "debug", "info", "warn", "error")
	cobra.CheckErr(cmd.MarkFlagDirname("data-dir"))
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := dev.Validate(); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		if err := portsFree(cmd.Context(), dev.Ports()); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		if dev.DataDir == "" {
			dev.DataDir, err = os.MkdirTemp("", "shardwatch-dev-")
			if err != nil {
				return fmt.Errorf("make a data directory: %w", err)
			}
			defer func() { err = errors.Join(err, os.RemoveAll(dev.DataDir)) }()
		}
		return runDev(cmd.Context(), dev, p.stdout, newLogger(p.stderr, dev.LogLevel, config.FormatText))
	}
	return cmd
}
