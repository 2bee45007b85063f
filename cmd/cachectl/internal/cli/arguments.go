package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// KnownCommand rejects arguments that do not name a command.
func KnownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	message := fmt.Sprintf("unknown command %q", args[0])
	if better := didYouMean("", commandsLike(cmd, args[0])); better != "" {
		message += "; " + better
	}
	return Usage(cmd, errors.New(message))
}

// Takes requires exactly the named arguments.
func Takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == len(names):
			return nil
		case len(names) == 0 && len(commandsLike(cmd, args[0])) > 0:
			return Usage(cmd, fmt.Errorf("unexpected argument %q; %s", args[0], didYouMean(cmd.CommandPath()+" ", commandsLike(cmd, args[0]))))
		case len(names) == 0:
			return Usage(cmd, fmt.Errorf("unexpected argument %q: there are none", args[0]))
		case len(args) < len(names):
			return Usage(cmd, fmt.Errorf("%s is missing", strings.Join(names[len(args):], " and ")))
		}
		return Usage(cmd, fmt.Errorf("unexpected argument %q: give %s only (quote arguments with spaces)", args[len(names)], strings.Join(names, " and ")))
	}
}
