package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
	"github.com/shardwatch/shardwatch/internal/ops/config"
)

const settingsHelp = `Every flag can also be set in the environment, as CACHENODE_ and the flag's name
in capitals (CACHENODE_DATA_DIR for --data-dir, lists comma separated), and in a
YAML file named by --config, under the flag's name. A flag wins over the
environment, the environment over the file, the file over the default.
'cachenode config' shows the result and the source of each setting.`

func newRunCommand(p process) *cobra.Command {
	s := newSettings(p)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run one cache node",
		Long: `Run one cache node until it receives a signal.

SIGTERM or SIGINT drains the node: it hands its shards to other nodes, sends its
watches to them and leaves the cluster, within --drain-timeout. A second signal exits
at once.

A port that other machines can reach needs TLS, and gossip a key, unless --insecure
exempts it. The node reloads certificates, keys and the policy when their files change,
and on SIGHUP. docs/security.md describes how to create and replace them.

With --kube-listen the node serves Kubernetes' API in front of apiservers instead of
etcd. With --join, such nodes share one watch at the apiservers for each resource, and
each keeps a copy. docs/kubernetes.md describes it.

` + settingsHelp + `

Exit codes: 0 drained, 1 failed, 2 wrong flags or configuration, 130 the second
signal.`,
		Example: `  # A cluster of one node, for a trial, without access control
  cachenode run --data-dir /tmp/shardwatch --bootstrap-expect 1 --insecure

  # One of three founders, with its certificates and keys named in a file; start
  # the other two in the same way
  cachenode run --config /etc/shardwatch/node.yaml --bootstrap-expect 3 --join cachenode.internal

  # One more node for an existing cluster
  cachenode run --config /etc/shardwatch/node.yaml --join node-1:7946`,
		Args: noArgs,
	}
	s.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if all, _ := cmd.Flags().GetBool(config.HelpAllFlag); all {
			return cmd.Help()
		}
		if _, err := s.read(cmd); err != nil {
			return err
		}
		log := newLogger(p.stderr, s.cfg.LogLevel, s.cfg.LogFormat)
		return runNode(cmd.Context(), s.cfg, log)
	}
	return cmd
}

// settings collect a node's configuration from all its sources.
type settings struct {
	process process
	cfg     config.Config
}

func newSettings(p process) *settings { return &settings{process: p, cfg: config.Defaults()} }

// flags adds the settings to cmd, with their completions for shells.
func (s *settings) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	s.cfg.Flags(fs)
	fs.String(config.FileFlag, "", "YAML `file` with settings, under the names of these flags")
	fs.Bool(config.HelpAllFlag, false, "show this help with all flags, including expert flags")
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		all, _ := fs.GetBool(config.HelpAllFlag) // fails only for a flag of another type
		flags := config.Usages(cmd.LocalFlags(), all, helpWidth)
		cmd.SetUsageTemplate(strings.Replace(cmd.Root().UsageTemplate(), localFlags, flags, 1))
		cmd.Root().HelpFunc()(cmd, args)
	})
	completeWith(cmd, "log-level", "debug", "info", "warn", "error")
	completeWith(cmd, "log-format", config.FormatText, config.FormatJSON)
	completeWith(cmd, "bootstrap-expect", "0", "1", "3", "5")
	cobra.CheckErr(cmd.MarkFlagDirname("data-dir"))
	cobra.CheckErr(cmd.MarkFlagFilename(config.FileFlag, "yaml", "yml"))
}

// read completes cfg from all layers and validates it. The error has every mistake;
// cfg has the valid settings even then.
func (s *settings) read(cmd *cobra.Command) (config.Layered, error) {
	l, err := config.Layer(cmd.Flags(), s.process.environ)
	if s.cfg.Name == "" {
		host, hostErr := s.process.hostname()
		if hostErr != nil {
			err = errors.Join(err, fmt.Errorf("--name is empty, and so is the hostname: %w", hostErr))
		}
		s.cfg.Name, l.Source["name"] = host, "hostname"
	}
	s.cfg.Named = slices.Sorted(maps.Keys(l.Source))
	for _, name := range l.Unknown {
		cmd.PrintErrf("cachenode: %s has no effect: there is no such setting\n", name)
	}
	err = errors.Join(err, s.cfg.Validate())
	if tlsconf.Readable("--policy", s.cfg.Policy) == nil { // otherwise Validate has reported it
		_, wrong := authz.Check(s.cfg.Policy)
		err = errors.Join(err, wrong)
	}
	if err != nil {
		return l, &usageError{cmd.CommandPath(), err}
	}
	return l, nil
}

func completeWith(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
}
