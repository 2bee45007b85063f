package keys

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

type waitFlags struct {
	deleted  bool
	value    string
	hasValue bool
	revision int64
}

func newWaitCommand(s *cli.Session) *cobra.Command {
	var f waitFlags
	cmd := &cobra.Command{
		Use:   "wait KEY",
		Short: "Wait until a key exists, has a value, has changed or is deleted",
		Long: `wait ends when the key exists, or when the condition of its flags holds, and prints the
revision of the key's last change; -o json also prints the key. It reads the key and
then watches it instead of polling, and continues at another node if its node dies.

Exit codes: 0 the condition holds, 5 it did not hold within --timeout, 1 the wait
failed, for example because no node answers.`,
		Example: `  cachectl wait /demo/ready --timeout 1m                 until it exists
  cachectl wait /demo/phase --value running --timeout 1m
  cachectl wait /demo/config --revision 43               until it has changed after 42
  cachectl wait /demo/lock --deleted`,
		Args: cli.Takes("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.hasValue = cmd.Flags().Changed("value")
			rng, err := cli.Span(args[0], false, "")
			switch {
			case err != nil:
			case f.revision < 0:
				err = fmt.Errorf("--revision %d: revisions are positive", f.revision)
			case f.deleted && (f.hasValue || f.revision != 0):
				err = errors.New("--deleted excludes --value and --revision")
			}
			if err != nil {
				return cli.Usage(cmd, err)
			}
			return s.With(cmd, func(ctx context.Context, c *client.Client) error { return f.run(ctx, s, c, rng) })
		},
	}
	cmd.Flags().BoolVar(&f.deleted, "deleted", false, "wait until the key does not exist")
	cmd.Flags().StringVar(&f.value, "value", "", "wait until the key has this value")
	cmd.Flags().Int64Var(&f.revision, "revision", 0, "wait until the key's last change has this revision or a later one")
	return cmd
}

// met reports whether a key fulfills the condition; nil: it does not exist.
func (f *waitFlags) met(kv *client.KeyValue) bool {
	if kv == nil || f.deleted {
		return kv == nil && f.deleted
	}
	return kv.ModRevision >= f.revision && (!f.hasValue || string(kv.Value) == f.value)
}

func (f *waitFlags) run(ctx context.Context, s *cli.Session, c *client.Client, rng client.Range) error {
	if _, err := s.Reach(ctx, c); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	w := c.Watch(ctx, rng, client.WithState())
	defer w.Close()
	for {
		u, err := w.Next(within)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted: %w", err)
		case within.Err() == nil:
			return err //nolint:wrapcheck // says what it did
		case w.Stats().LastError != nil:
			return fmt.Errorf("wait for %s: %w: %w", document.Text([]byte(rng.Start)), client.ErrUnavailable, w.Stats().LastError)
		default:
			return &cli.UnmetError{Err: fmt.Errorf("%s: the condition did not hold within %v", document.Text([]byte(rng.Start)), s.Timeout)}
		}
		for _, kv := range versions(u) {
			if f.met(kv) {
				return waited(s, u.Position(), kv)
			}
		}
	}
}

// versions returns the states of the only key of the update's range, oldest first;
// nil: it does not exist.
func versions(u client.Update) (out []*client.KeyValue) {
	for i := range u.Events {
		if u.Events[i].Type == client.EventDelete {
			out = append(out, nil)
		} else {
			out = append(out, &u.Events[i].KV)
		}
	}
	for i := range u.KVs {
		out = append(out, &u.KVs[i])
	}
	whole := u.Kind == client.KindState || u.Kind == client.KindResync
	if len(u.Deleted) > 0 || whole && len(u.KVs) == 0 {
		out = append(out, nil)
	}
	return out
}

func waited(s *cli.Session, at client.Position, kv *client.KeyValue) error {
	if s.Structured() {
		out := struct {
			cli.PositionJSON
			KV *cli.KeyValueJSON `json:"kv,omitempty"`
		}{PositionJSON: cli.PositionOf(at)}
		if kv != nil {
			form := cli.KeyValueOf(*kv, true)
			out.KV = &form
		}
		return s.Document(out)
	}
	if kv != nil {
		at.Revision = kv.ModRevision
	}
	return cli.Lines(s.Process.Stdout, fmt.Sprintf("revision %d", at.Revision))
}
