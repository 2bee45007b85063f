package keys

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

func newExportCommand(s *cli.Session) *cobra.Command {
	var prefix, serializable bool
	var rangeEnd string
	var rev int64
	cmd := &cobra.Command{
		Use:        "export KEY",
		SuggestFor: []string{"dump", "backup"},
		Short:      "Print keys and values as JSON lines, all at one revision",
		Long: `export prints the keys of a range, all at one revision, for cachectl import: a first
line with the revision, a line of JSON for each key, and a last line that marks the
export as complete. Keys and values that are not text are in base64. An export does not
replace a backup of etcd: revisions and leases are printed, but not imported.`,
		Example: `  cachectl export --prefix /demo/ >demo.jsonl
  cachectl export --prefix "" | gzip >all.jsonl.gz`,
		Args: cli.Takes("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			rng, err := cli.Span(args[0], prefix, rangeEnd)
			if err == nil {
				err = readErr(rev, serializable)
			}
			if err != nil {
				return cli.Usage(cmd, err)
			}
			return s.With(cmd, func(ctx context.Context, c *client.Client) error {
				return export(s, c.List(ctx, rng, listOptions(rev, serializable)...), rng)
			})
		},
	}
	cmd.Flags().BoolVar(&prefix, "prefix", false, "export all keys that begin with KEY")
	cmd.Flags().StringVar(&rangeEnd, "range-end", "", "export the keys from KEY on and below this one")
	readFlags(cmd, &rev, &serializable)
	return cmd
}

func export(s *cli.Session, l *client.Listing, rng client.Range) error {
	out := bufio.NewWriter(s.Process.Stdout)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	p := cli.NewProgress(s.Process.Stderr)
	var keys, size int64
	for kv, err := range l.All() {
		if err != nil {
			return errors.Join(err, out.Flush()) //nolint:wrapcheck // says what it did
		}
		if keys == 0 {
			err = enc.Encode(headOf(rng, l.Position()))
		}
		if err == nil {
			err = enc.Encode(cli.KeyValueOf(kv, true))
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		keys, size = keys+1, size+int64(len(kv.Key)+len(kv.Value))
		p.Tell(time.Now(), "%d keys, %s exported", keys, cli.BytesOf(size))
	}
	var err error
	if keys == 0 {
		err = enc.Encode(headOf(rng, l.Position()))
	}
	if err = errors.Join(err, enc.Encode(exportEnd{keys}), out.Flush()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
