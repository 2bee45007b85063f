package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
)

type watchFlags struct {
	prefix, state, prev bool
	rangeEnd            string
	from, count         int64
}

func newWatchCommand(s *session) *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch KEY",
		Short: "Follow a key or range",
		Long: `watch prints a line for every change, in order, each once: PUT or DELETE, the
revision, the key, the value. With --state, a line STATE for each key comes
first. It ends with Ctrl-C. When its node dies it goes on at another one, from
where it was, and says so on standard error.`,
		Example: `  cachectl watch /demo/a                     one key
  cachectl watch --prefix /demo/             all keys below /demo/
  cachectl watch --prefix "" -o json         everything, an object per line
  cachectl watch --prefix /demo/ --state     what is there, then what changes
  cachectl watch --prefix /demo/ --from 42   every change since revision 42`,
		Args: takes("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			rng, err := span(args[0], f.prefix, f.rangeEnd)
			switch {
			case err != nil:
			case f.state && f.from != 0:
				err = errors.New("--state and --from exclude each other")
			case f.from < 0:
				err = fmt.Errorf("--from %d: revisions are positive", f.from)
			}
			if err != nil {
				return &usageError{cmd.CommandPath(), err}
			}
			return s.with(cmd, func(ctx context.Context, c *client.Client) error { return f.run(ctx, s, c, rng) })
		},
	}
	cmd.Flags().BoolVar(&f.prefix, "prefix", false, "watch all keys that begin with KEY")
	cmd.Flags().StringVar(&f.rangeEnd, "range-end", "", "watch the keys from KEY on and below this one")
	cmd.Flags().Int64Var(&f.from, "from", 0, "the first revision to print; it may lie in the future (default: now)")
	cmd.Flags().BoolVar(&f.state, "state", false, "print what is there first")
	cmd.Flags().BoolVar(&f.prev, "prev", false, "print the value before each change, too")
	cmd.Flags().Int64Var(&f.count, "count", 0, "end after so many lines (default: never)")
	return cmd
}

func (f *watchFlags) run(ctx context.Context, s *session, c *client.Client, rng client.Range) error {
	within, cancel := context.WithTimeout(ctx, s.timeout)
	_, err := c.ShardMap(within) // tells whether anybody is there
	cancel()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err //nolint:wrapcheck // says what it did
	}
	opts := []client.WatchOption{client.OnResume(func(r client.Resume) {
		if r.From != r.To {
			fmt.Fprintf(s.p.stderr, "cachectl: moved from %s to %s behind revision %d: %v\n", r.From, r.To, r.Revision, r.Reason)
		}
	})}
	if f.from > 0 {
		opts = append(opts, client.FromRevision(f.from))
	}
	if f.state {
		opts = append(opts, client.WithState())
	}
	if f.prev {
		opts = append(opts, client.WithPrevKV())
	}
	w := c.Watch(ctx, rng, opts...)
	defer w.Close()
	left := f.count
	for u, err := range w.Updates() {
		if ctx.Err() != nil {
			return nil // Ctrl-C is how a watch ends
		}
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		for _, e := range linesOf(u) {
			if err := f.line(s, e); err != nil {
				return err
			}
			if left--; left == 0 {
				return nil
			}
		}
	}
	return nil
}

// line is one line of output.
type line struct {
	what     string
	revision int64
	e        client.Event
}

func linesOf(u client.Update) []line {
	var out []line
	for _, kv := range u.KVs {
		out = append(out, line{"STATE", kv.ModRevision, client.Event{KV: kv}})
	}
	for _, e := range u.Events {
		out = append(out, line{e.Type.String(), u.Revision, e})
	}
	return out
}

func (f *watchFlags) line(s *session, l line) error {
	var err error
	if s.json() {
		out := eventJSON{Type: l.what, Revision: l.revision, keyValueJSON: keyValueOf(l.e.KV, l.e.Type == client.Put)}
		if l.e.Prev != nil {
			prev := keyValueOf(*l.e.Prev, true)
			out.Prev = &prev
		}
		enc := json.NewEncoder(s.p.stdout)
		enc.SetEscapeHTML(false)
		err = enc.Encode(out)
	} else {
		text := fmt.Sprintf("%-6s  %d  %s", l.what, l.revision, show(l.e.KV.Key))
		if l.e.Type == client.Put {
			text += "  " + show(l.e.KV.Value)
		}
		if f.prev && l.e.Prev != nil {
			text += "  (was " + show(l.e.Prev.Value) + ")"
		}
		_, err = fmt.Fprintln(s.p.stdout, strings.TrimRight(text, " "))
	}
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
