package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

type putFlags struct {
	ifRevision int64
	lease      string
}

func newPutCommand(s *cli.Session) *cobra.Command {
	var f putFlags
	cmd := &cobra.Command{
		Use:        "put KEY VALUE",
		SuggestFor: []string{"set", "write"},
		Short:      "Write a key",
		Long: `put writes a key to etcd and prints the revision of the change. VALUE - is read
from standard input, up to its last byte.

With --if-revision it writes only if the key's last change has that revision, or
with 0 if the key does not exist. If not, it changes nothing and exits with 5.`,
		Example: `  cachectl put /demo/a hello
  cachectl put /demo/config - < config.json
  cachectl put /demo/a world --if-revision 42
  cachectl put /demo/lock me --if-revision 0 --lease 0x70ce8c5e51ac0103`,
		Args: cli.Takes("KEY", "VALUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			lease, err := f.leaseID()
			switch {
			case args[0] == "":
				err = errors.New("KEY is empty")
			case f.ifRevision < 0:
				err = fmt.Errorf("--if-revision %d: revisions are positive, 0 means a key that does not exist", f.ifRevision)
			}
			if err != nil {
				return cli.Usage(cmd, err)
			}
			op := client.Op{Key: args[0], Value: []byte(args[1]), Lease: lease}
			if args[1] == "-" {
				if op.Value, err = io.ReadAll(cli.Input(cmd.Context(), s.Process.Stdin)); err != nil {
					return fmt.Errorf("read the value: %w", err)
				}
			}
			var conditions []client.Condition
			if cmd.Flags().Changed("if-revision") {
				conditions = append(conditions, client.Condition{Key: op.Key, ModRevision: f.ifRevision})
			}
			return put(s, cmd, conditions, op)
		},
	}
	cmd.Flags().Int64Var(&f.ifRevision, "if-revision", 0, "write only if the key's last change has this revision; 0: only if the key does not exist")
	cmd.Flags().StringVar(&f.lease, "lease", "", "attach the key to this lease of etcd; in hexadecimal, prefixed with 0x")
	return cmd
}

// leaseID returns the ID of --lease; 0: none.
func (f *putFlags) leaseID() (int64, error) {
	if f.lease == "" {
		return 0, nil
	}
	id, err := strconv.ParseInt(f.lease, 0, 64)
	if err != nil || id <= 0 {
		return 0, fmt.Errorf("--lease %q is not the ID of a lease: prefix the ID that etcdctl prints with 0x", f.lease)
	}
	return id, nil
}

func put(s *cli.Session, cmd *cobra.Command, conditions []client.Condition, op client.Op) error {
	return s.Within(cmd, func(ctx context.Context, c *client.Client) error {
		var at client.Position
		var err error
		if len(conditions) == 0 && op.Lease == 0 {
			at, err = c.Put(ctx, op.Key, op.Value)
		} else {
			at, err = c.Txn(ctx, conditions, op)
		}
		var conflict *client.ConflictError
		if errors.As(err, &conflict) {
			return &cli.UnmetError{Err: conflict}
		}
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		return written(s, at, fmt.Sprintf("revision %d", at.Revision), nil)
	})
}

func newDelCommand(s *cli.Session) *cobra.Command {
	var prefix bool
	cmd := &cobra.Command{
		Use:        "del KEY",
		SuggestFor: []string{"delete", "remove", "rm"},
		Short:      "Delete a key, or all with a prefix",
		Long:       `del deletes in etcd, all in one revision, and prints how many keys there were.`,
		Example: `  cachectl del /demo/a
  cachectl del --prefix /demo/`,
		Args: cli.Takes("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			rng, err := cli.Span(args[0], prefix, "")
			if err != nil {
				return cli.Usage(cmd, err)
			}
			return s.Within(cmd, func(ctx context.Context, c *client.Client) error {
				at, n, err := c.Delete(ctx, rng)
				if err != nil {
					return err //nolint:wrapcheck // says what it did
				}
				if n == 0 && !prefix {
					s.Advise(cli.IsPrefix(ctx, c, "del", args[0]))
				}
				return written(s, at, fmt.Sprintf("%d deleted, revision %d", n, at.Revision), &n)
			})
		},
	}
	cmd.Flags().BoolVar(&prefix, "prefix", false, "delete all keys that begin with KEY")
	return cmd
}

func written(s *cli.Session, at client.Position, text string, deleted *int64) error {
	if s.Structured() {
		return s.Document(struct {
			cli.PositionJSON
			Deleted *int64 `json:"deleted,omitempty"`
		}{cli.PositionOf(at), deleted})
	}
	if _, err := fmt.Fprintln(s.Process.Stdout, text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
