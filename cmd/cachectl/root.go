package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/changes"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cluster"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/keys"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/kube"
)

func newRoot(p cli.Process) *cobra.Command {
	root := &cobra.Command{
		Use:   "cachectl",
		Short: "Watch and read keys through a Shardwatch cluster",
		Long: `cachectl watches, reads and writes keys through a Shardwatch cluster, and shows the
state of the cluster. Any node can be the endpoint: cachectl learns the other nodes
from it, and a watch resumes on another node if its node dies. cachectl kube shows the nodes
that serve Kubernetes' API.

Exit codes: 0 success, 1 failure (or the key does not exist), 2 wrong command line,
3 a change of the shard map was accepted and continues, 4 the voters have no leader,
5 a condition did not hold (put --if-revision, wait).`,
		Example: `  cachectl watch --prefix /demo/            print changes as they happen
  cachectl put /demo/a hello                write (passed through to etcd)
  cachectl list --prefix /demo/ --keys-only
  cachectl shards                           shards, their nodes and their progress
  cachectl watchers                         open watches and their lag
  cachectl drain node-3                     move all shards off a node
  cachectl trace 4711                       the delivery times of a revision
  cachectl kube status --http kube-1:7480   nodes that serve Kubernetes' API
  cachectl --endpoints node-1:7400,node-2:7400 members -o json`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cli.KnownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(cli.FlagError)
	s := cli.NewSession(p, root.PersistentFlags())
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.Validate(); err != nil {
			return cli.Usage(cmd, err)
		}
		return nil
	}
	root.AddCommand(keys.Commands(s)...)
	root.AddCommand(cluster.Commands(s)...)
	root.AddCommand(changes.Commands(s)...)
	root.AddCommand(kube.NewCommand(s), newConnectCommand(s), cli.NewConfigCommand(s), newCompletionCommand())
	for _, cmd := range root.Commands() {
		if _, key, _ := strings.Cut(cmd.Use, " "); strings.HasPrefix(key, "KEY") {
			cmd.ValidArgsFunction = cli.CompletesKey(s)
		}
	}
	_ = root.RegisterFlagCompletionFunc("context", s.CompleteContexts) // fails for a flag that does not exist
	return root
}

func newCompletionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a completion script for a shell",
		Long: `completion prints a script that completes commands, flags, contexts, shards and nodes,
and the cluster's keys for commands that take a KEY.`,
		Example: `  source <(cachectl completion bash)
  cachectl completion zsh > "${fpath[1]}/_cachectl"
  cachectl completion fish > ~/.config/fish/completions/cachectl.fish
  cachectl completion powershell | Out-String | Invoke-Expression`,
		Args:      cli.Takes(strings.Join(shells[:3], ", ") + " or " + shells[3]),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(out)
			case "fish":
				return cmd.Root().GenFishCompletion(out, true)
			case "powershell":
				return cmd.Root().GenPowerShellCompletionWithDesc(out)
			}
			return cli.Usage(cmd, fmt.Errorf("no completion for %q: use %s", args[0], strings.Join(shells, ", ")))
		},
	}
}
