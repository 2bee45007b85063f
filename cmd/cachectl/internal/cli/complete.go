package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

// completeWithin is how long a shell waits for words from the cluster.
const completeWithin = time.Second

// Completes completes arguments from the live cluster. It completes nothing if no node
// answers.
func Completes(s *Session, words func(admin.ClusterStatus) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var out []string
		Complete(s, cmd, func(ctx context.Context, c *client.Client) error {
			status, err := admin.New(c).ClusterStatus(ctx, s.Timeout/2)
			out = words(status)
			return err
		})
		return slices.DeleteFunc(out, func(w string) bool {
			return slices.ContainsFunc(args, func(a string) bool { return w == a || len(w) > len(a) && w[:len(a)+1] == a+"\t" })
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// Complete calls ask, for as long as a shell waits. It ignores errors: the command
// reports them when it runs.
func Complete(s *Session, cmd *cobra.Command, ask func(context.Context, *client.Client) error) {
	_ = s.Resolve(cmd)
	s.Timeout = min(s.Timeout, completeWithin)
	_ = s.Within(cmd, ask)
}

// ShardIDs returns the IDs of the shards, each with its range and owner.
func ShardIDs(cs admin.ClusterStatus) []string {
	var out []string
	for _, s := range cs.Map.Shards {
		out = append(out, fmt.Sprintf("%d\t%s to %s, on %s", s.ID, Boundary(s.Range.Start), Boundary(s.Range.End), OrDash(s.Owner())))
	}
	return out
}

// NodeNames returns the names of the nodes, each with its state.
func NodeNames(cs admin.ClusterStatus) []string {
	var out []string
	for _, m := range cs.Members {
		out = append(out, m.Member.Name+"\t"+StateOf(m.Member))
	}
	return out
}

// Bounds of the completed keys, and of the lists to find them.
const (
	completeKeys  = 64
	completeLists = 8
)

// CompletesKey completes the first argument with keys of the cluster, up to the next
// "/", as a shell completes paths. It completes nothing if no node answers.
func CompletesKey(s *Session) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var keys []string
		Complete(s, cmd, func(ctx context.Context, c *client.Client) (err error) {
			keys, err = branches(typed, func(r client.Range) ([]string, error) {
				var page []string
				for kv, err := range c.List(ctx, r, client.KeysOnly(), client.Limit(completeKeys), client.Serializable(0)).All() {
					if err != nil {
						return page, err
					}
					page = append(page, string(kv.Key))
				}
				return page, nil
			})
			return err
		})
		if slices.ContainsFunc(keys, func(k string) bool { return strings.HasSuffix(k, "/") }) {
			return keys, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return keys, cobra.ShellCompDirectiveNoFileComp
	}
}

// branches returns the keys that begin with prefix, each truncated after the first "/"
// after prefix, without duplicates. list returns the first keys of a range. Keys that a
// shell cannot show are omitted.
func branches(prefix string, list func(client.Range) ([]string, error)) (out []string, err error) {
	all := client.Prefix(prefix)
	for range completeLists {
		page, err := list(all)
		if err != nil || len(page) == 0 {
			return out, err
		}
		last := page[len(page)-1]
		for _, key := range page {
			before, _, cut := strings.Cut(key[len(prefix):], "/")
			if cut {
				key = prefix + before + "/"
			}
			if document.Text([]byte(key)) != key || len(out) > 0 && out[len(out)-1] == key {
				continue
			}
			if out = append(out, key); len(out) == completeKeys {
				return out, nil
			}
		}
		all.Start = last + "\x00"
		if before, _, cut := strings.Cut(last[len(prefix):], "/"); cut {
			all.Start = client.Prefix(prefix + before + "/").End // skip the other keys of this branch
		}
		if all.End != "" && all.Start >= all.End || len(page) < completeKeys {
			break
		}
	}
	return out, nil
}
