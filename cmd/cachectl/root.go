package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newRoot(p process) *cobra.Command {
	root := &cobra.Command{
		Use:   "cachectl",
		Short: "Watch and read keys through a Shardwatch cluster",
		Long: `cachectl watches, reads and writes keys through a Shardwatch cluster, and shows the
state of the cluster. Any node can be the endpoint: cachectl learns the other nodes
from it, and a watch resumes on another node if its node dies.

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
  cachectl --endpoints node-1:7400,node-2:7400 members -o json`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	s := newSession(p, root.PersistentFlags())
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.Validate(); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		return nil
	}
	root.AddCommand(
		newWatchCommand(s), newListCommand(s), newCountCommand(s), newGetCommand(s), newPutCommand(s), newDelCommand(s), newWaitCommand(s), newExportCommand(s), newImportCommand(s), newVerifyCommand(s),
		newMembersCommand(s), newVotersCommand(s), newShardsCommand(s), newStatusCommand(s), newWatchersCommand(s), newTopCommand(s), newTraceCommand(s), newLineageCommand(s), newConnectCommand(s),
		newSplitCommand(s), newMergeCommand(s), newMoveCommand(s), newDrainCommand(s), newUndrainCommand(s), newRebalanceCommand(s), newUpgradeCommand(s), newSettingsCommand(s),
		newConfigCommand(s), newVersionCommand(s), newCompletionCommand(),
	)
	for _, cmd := range root.Commands() {
		if _, key, _ := strings.Cut(cmd.Use, " "); strings.HasPrefix(key, "KEY") {
			cmd.ValidArgsFunction = completesKey(s)
		}
	}
	_ = root.RegisterFlagCompletionFunc("context", s.completeContexts) // fails for a flag that does not exist
	return root
}

// knownCommand refuses what is not the name of a command.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	message := fmt.Sprintf("unknown command %q", args[0])
	if better := didYouMean("", commandsLike(cmd, args[0])); better != "" {
		message += "; " + better
	}
	return &usageError{cmd.CommandPath(), errors.New(message)}
}

// takes says which arguments a command takes, by their names.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == len(names):
			return nil
		case len(names) == 0 && len(commandsLike(cmd, args[0])) > 0:
			return &usageError{cmd.CommandPath(), fmt.Errorf("unexpected argument %q; %s", args[0], didYouMean(cmd.CommandPath()+" ", commandsLike(cmd, args[0])))}
		case len(names) == 0:
			return &usageError{cmd.CommandPath(), fmt.Errorf("unexpected argument %q: there are none", args[0])}
		case len(args) < len(names):
			return &usageError{cmd.CommandPath(), fmt.Errorf("%s is missing", strings.Join(names[len(args):], " and "))}
		}
		return &usageError{cmd.CommandPath(), fmt.Errorf("unexpected argument %q: give %s only (quote arguments with spaces)", args[len(names)], strings.Join(names, " and "))}
	}
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
		Args:      takes(strings.Join(shells[:3], ", ") + " or " + shells[3]),
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
			return &usageError{cmd.CommandPath(), fmt.Errorf("no completion for %q: use %s", args[0], strings.Join(shells, ", "))}
		},
	}
}
