package keys

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

func newGetCommand(s *cli.Session) *cobra.Command {
	var rev int64
	var serializable bool
	cmd := &cobra.Command{
		Use:        "get KEY",
		SuggestFor: []string{"cat", "read"},
		Short:      "Print a key's value",
		Long: `get prints the value of a key as it is, and a newline. A key that does not exist
is an error: exit code 1. With -o json it also prints the revisions.`,
		Example: `  cachectl get /demo/a
  cachectl get /demo/a --rev 42 -o json`,
		Args: cli.Takes("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := readErr(rev, serializable)
			if args[0] == "" {
				err = errors.New("KEY is empty")
			}
			if err != nil {
				return cli.Usage(cmd, err)
			}
			return s.Within(cmd, func(ctx context.Context, c *client.Client) error {
				r, err := c.Get(ctx, args[0], readOptions(rev, serializable)...)
				switch {
				case err != nil:
					return err //nolint:wrapcheck // says what it did
				case r.KV == nil:
					err := fmt.Errorf("%s does not exist (revision %d)", document.Text([]byte(args[0])), r.Revision)
					if better := cli.IsPrefix(ctx, c, "list", args[0]); better != "" {
						err = fmt.Errorf("%w; %s", err, better)
					}
					return err
				case s.Structured():
					return s.Document(struct {
						cli.PositionJSON
						KV cli.KeyValueJSON `json:"kv"`
					}{cli.PositionOf(r.Position()), cli.KeyValueOf(*r.KV, true)})
				}
				if _, err := fmt.Fprintf(s.Process.Stdout, "%s\n", r.KV.Value); err != nil {
					return fmt.Errorf("write: %w", err)
				}
				return nil
			})
		},
	}
	readFlags(cmd, &rev, &serializable)
	return cmd
}

func readFlags(cmd *cobra.Command, rev *int64, serializable *bool) {
	cmd.Flags().Int64Var(rev, "rev", 0, "read at this revision; it must be recent (default: now)")
	cmd.Flags().BoolVar(serializable, "serializable", false, "read the node's cache, if fresh enough, without asking etcd")
}

// readErr validates the flags of readFlags.
func readErr(rev int64, serializable bool) error {
	switch {
	case rev < 0:
		return fmt.Errorf("--rev %d: revisions are positive", rev)
	case rev != 0 && serializable:
		return errors.New("--rev and --serializable exclude each other")
	}
	return nil
}

func readOptions(rev int64, serializable bool) []client.ReadOption {
	var opts []client.ReadOption
	if rev != 0 {
		opts = append(opts, client.AtRevision(rev))
	}
	if serializable {
		opts = append(opts, client.Serializable(0))
	}
	return opts
}

func listOptions(rev int64, serializable bool) []client.ListOption {
	var opts []client.ListOption
	for _, o := range readOptions(rev, serializable) {
		opts = append(opts, o)
	}
	return opts
}

type listFlags struct {
	prefix, keysOnly, valuesOnly, serializable bool
	rangeEnd, page                             string
	limit, rev                                 int64
}

func newListCommand(s *cli.Session) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:        "list KEY",
		SuggestFor: []string{"ls", "range"},
		Short:      "List keys, all at one revision",
		Example: `  cachectl list --prefix /demo/
  cachectl list --prefix "" --keys-only --limit 100
  cachectl list /a --range-end /b -o json
  cachectl list --prefix /demo/ -o jsonpath='$.kvs[?@.version > 1].key'`,
		Args: cli.Takes("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			rng, err := cli.Span(args[0], f.prefix, f.rangeEnd)
			page, pageErr := base64.RawURLEncoding.DecodeString(f.page)
			if pageErr != nil {
				err = fmt.Errorf("--page: not a page token of an earlier list: %w", pageErr)
			}
			if err == nil {
				err = readErr(f.rev, f.serializable)
			}
			if f.limit < 0 {
				err = fmt.Errorf("--limit %d is negative", f.limit)
			}
			if f.valuesOnly && (f.keysOnly || s.Structured()) {
				err = errors.New("--values-only excludes --keys-only and --output")
			}
			if err != nil {
				return cli.Usage(cmd, err)
			}
			opts := append(listOptions(f.rev, f.serializable), client.Limit(f.limit))
			if f.keysOnly {
				opts = append(opts, client.KeysOnly())
			}
			if len(page) > 0 {
				opts = append(opts, client.Page(page))
			}
			return s.Within(cmd, func(ctx context.Context, c *client.Client) error {
				n, err := f.print(s, c.List(ctx, rng, opts...))
				if err == nil && n == 0 && !f.prefix && f.rangeEnd == "" {
					s.Advise(cli.IsPrefix(ctx, c, "list", args[0]))
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&f.prefix, "prefix", false, "list all keys that begin with KEY")
	cmd.Flags().StringVar(&f.rangeEnd, "range-end", "", "list the keys from KEY on and below this one")
	cmd.Flags().Int64Var(&f.limit, "limit", 0, "maximum number of keys to list (default: all)")
	cmd.Flags().StringVar(&f.page, "page", "", "continue an earlier list that --limit ended, with the token that it printed")
	cmd.Flags().BoolVar(&f.keysOnly, "keys-only", false, "do not print the values")
	cmd.Flags().BoolVar(&f.valuesOnly, "values-only", false, "print only the values, unquoted, each followed by a newline")
	readFlags(cmd, &f.rev, &f.serializable)
	return cmd
}

// print prints a list and returns the number of its keys.
func (f *listFlags) print(s *cli.Session, l *client.Listing) (n int, err error) {
	kvs := []cli.KeyValueJSON{}
	t := &cli.Table{}
	header := []string{"KEY", "REVISION", "VERSION", "VALUE"}
	if f.keysOnly {
		header = header[:3]
	}
	t.Row(header...)
	for kv, err := range l.All() {
		n++
		switch {
		case err != nil:
			return n, err
		case f.valuesOnly:
			if _, err := fmt.Fprintf(s.Process.Stdout, "%s\n", kv.Value); err != nil {
				return n, fmt.Errorf("write: %w", err)
			}
		case s.Structured():
			kvs = append(kvs, cli.KeyValueOf(kv, !f.keysOnly))
		default:
			t.Row([]string{document.Text(kv.Key), cli.Number(kv.ModRevision), cli.Number(kv.Version), document.Text(kv.Value)}[:len(header)]...)
		}
	}
	next := base64.RawURLEncoding.EncodeToString(l.NextPage())
	if s.Structured() {
		return n, s.Document(struct {
			cli.PositionJSON
			KVs      []cli.KeyValueJSON `json:"kvs"`
			NextPage string             `json:"next_page,omitempty"`
		}{cli.PositionOf(l.Position()), kvs, next})
	}
	if f.valuesOnly {
		t.Rows = nil
	}
	if err := t.Write(s.Process.Stdout); err != nil {
		return n, err
	}
	if next != "" {
		fmt.Fprintf(s.Process.Stderr, "cachectl: there are more keys; continue with --page %s\n", next)
	}
	return n, nil
}
