package keys

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

func newCountCommand(s *cli.Session) *cobra.Command {
	var prefix, serializable bool
	var rangeEnd string
	var rev int64
	cmd := &cobra.Command{
		Use:   "count KEY",
		Short: "Count keys",
		Long:  `count prints how many keys there are. No keys or values are transferred.`,
		Example: `  cachectl count --prefix /demo/
  cachectl count --prefix "" --rev 42`,
		Args: cli.Takes("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			rng, err := cli.Span(args[0], prefix, rangeEnd)
			if err == nil {
				err = readErr(rev, serializable)
			}
			if err != nil {
				return cli.Usage(cmd, err)
			}
			return s.Within(cmd, func(ctx context.Context, c *client.Client) error {
				n, at, err := c.Count(ctx, rng, readOptions(rev, serializable)...)
				if err != nil {
					return err //nolint:wrapcheck // says what it did
				}
				if n == 0 && !prefix && rangeEnd == "" {
					s.Advise(cli.IsPrefix(ctx, c, "count", args[0]))
				}
				if s.Structured() {
					return s.Document(struct {
						Revision int64 `json:"revision"`
						Keys     int64 `json:"keys"`
					}{at, n})
				}
				return cli.Lines(s.Process.Stdout, cli.Number(n))
			})
		},
	}
	cmd.Flags().BoolVar(&prefix, "prefix", false, "count all keys that begin with KEY")
	cmd.Flags().StringVar(&rangeEnd, "range-end", "", "count the keys from KEY on and below this one")
	readFlags(cmd, &rev, &serializable)
	return cmd
}
