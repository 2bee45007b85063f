package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

// FlagError returns the error of a flag that cannot be parsed. For an unknown flag
// it suggests another.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		if better := insteadOf(cmd, unknown.GetSpecifiedName()); better != "" {
			err = fmt.Errorf("%w; %s", err, better)
		}
	}
	return Usage(cmd, err)
}

// insteadOf suggests a replacement for a flag that cmd does not have, or a flag with
// a similar name; "": none.
func insteadOf(cmd *cobra.Command, flag string) string {
	switch cmd.Name() + " --" + flag {
	case "get --prefix", "get --range-end", "get --from-key", "get --keys-only", "get --limit":
		return "get reads one key, list reads several: cachectl list --prefix KEY"
	case "get --values-only", "get --print-value-only":
		return "get prints the value alone"
	case "list --from-key", "watch --from-key":
		return `use --prefix "" for all keys, or --range-end`
	case "watch --rev":
		return "use --from"
	case "watch --prev-kv", "del --prev-kv":
		return "cachectl watch has --prev"
	}
	// cobra finds similar names only for commands.
	names := &cobra.Command{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	return didYouMean("--", commandsLike(names, flag))
}

// commandsLike returns the commands below cmd whose name begins with name or differs
// in one or two letters, or that other tools call name.
func commandsLike(cmd *cobra.Command, name string) []string {
	cmd.SuggestionsMinimumDistance = max(1, min(2, len(name)/2)) // unrelated short names differ in two letters, too
	near := cmd.SuggestionsFor(name)
	slices.Sort(near)
	return slices.Compact(near)
}

func didYouMean(before string, near []string) string {
	if len(near) == 0 {
		return ""
	}
	return "did you mean " + before + strings.Join(near, " or "+before) + "?"
}

// IsPrefix returns advice for a KEY that does not exist but is a prefix of other keys;
// "": it is not, or they cannot be listed.
func IsPrefix(ctx context.Context, c *client.Client, command, key string) string {
	for _, err := range c.List(ctx, client.Prefix(key), client.KeysOnly(), client.Limit(1)).All() {
		if err == nil {
			return fmt.Sprintf("keys with this prefix exist: cachectl %s --prefix %s", command, document.Text([]byte(key)))
		}
	}
	return ""
}
