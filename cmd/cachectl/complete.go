package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
)

// completeWithin is how long a shell waits for what the cluster knows.
const completeWithin = time.Second

// completes completes arguments from the live cluster; with nothing when that
// does not answer.
func completes(s *session, words func(client.ClusterStatus) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var out []string
		_ = s.resolve(cmd) // what is wrong is said when the command runs
		s.timeout = min(s.timeout, completeWithin)
		_ = s.within(cmd, func(ctx context.Context, c *client.Client) error {
			status, err := c.ClusterStatus(ctx, s.timeout/2)
			out = words(status)
			return err
		})
		return slices.DeleteFunc(out, func(w string) bool {
			return slices.ContainsFunc(args, func(a string) bool { return w == a || len(w) > len(a) && w[:len(a)+1] == a+"\t" })
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// shardIDs are those of the shards, each with its range.
func shardIDs(cs client.ClusterStatus) []string {
	var out []string
	for _, s := range cs.Map.Shards {
		out = append(out, fmt.Sprintf("%d\t%s to %s, on %s", s.ID, boundary(s.Range.Start), boundary(s.Range.End), orDash(s.Owner())))
	}
	return out
}

// nodeNames are those of the nodes, each with its state.
func nodeNames(cs client.ClusterStatus) []string {
	var out []string
	for _, m := range cs.Members {
		out = append(out, m.Member.Name+"\t"+stateOf(m.Member))
	}
	return out
}
