package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
)

func newCountCommand(s *session) *cobra.Command {
	var prefix, serializable bool
	var rangeEnd string
	var rev int64
	cmd := &cobra.Command{
		Use:   "count KEY",
		Short: "Count keys",
		Long:  `count prints how many keys there are. No keys or values are transferred.`,
		Example: `  cachectl count --prefix /demo/
  cachectl count --prefix "" --rev 42`,
		Args: takes("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			rng, err := span(args[0], prefix, rangeEnd)
			if err == nil {
				err = readErr(rev, serializable)
			}
			if err != nil {
				return &usageError{cmd.CommandPath(), err}
			}
			return s.within(cmd, func(ctx context.Context, c *client.Client) error {
				n, at, err := c.Count(ctx, rng, readOptions(rev, serializable)...)
				if err != nil {
					return err //nolint:wrapcheck // says what it did
				}
				if n == 0 && !prefix && rangeEnd == "" {
					s.advise(isPrefix(ctx, c, "count", args[0]))
				}
				if s.Structured() {
					return s.Document(struct {
						Revision int64 `json:"revision"`
						Keys     int64 `json:"keys"`
					}{at, n})
				}
				return lines(s.p.stdout, number(n))
			})
		},
	}
	cmd.Flags().BoolVar(&prefix, "prefix", false, "count all keys that begin with KEY")
	cmd.Flags().StringVar(&rangeEnd, "range-end", "", "count the keys from KEY on and below this one")
	readFlags(cmd, &rev, &serializable)
	return cmd
}
