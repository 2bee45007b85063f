package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
)

type watchFlags struct {
	prefix, state, prev, noSync bool
	rangeEnd                    string
	from, count                 int64
	conflate, maxStaleness      time.Duration
	resume                      string
	command                     []string // run for each update; empty: updates are printed
}

func newWatchCommand(s *session) *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:        "watch KEY [-- CMD [ARG...]]",
		SuggestFor: []string{"follow", "tail"},
		Short:      "Follow a key or range",
		Long: `watch prints a line for every change, in order, each once: PUT or DELETE, the
revision, the key, the value. It ends with Ctrl-C. When its node dies it goes on
at another one, from where it was, and says so on standard error.

Units stand between a line BEGIN and a line END and are printed whole or not at
all. With --state, the first is the state: a line STATE for each key, with the
revision of its last change. When changes are no longer to be had one by one, a
delta follows: PUT for each key that has changed since, DELETE for each that does
not exist any more, with the delta's revision; when no node knows what has
changed, when etcd was restored, or when another cluster answers, a resync: STATE for all that is there, and what is
not among it is gone. With --no-sync the watch ends there instead, with status 1.
With --conflate, all changes come in units, the newest value of each key.

With --resume-file the watch continues after the last update that was printed whole by
a watch with that file; without a position in it, as the other flags say. It is saved
atomically after each update, while others wait at most ten times in a second: after a
crash some lines may be printed again, none is lost.

With -- CMD nothing is printed. CMD runs once for each update (all changes of a
revision, or a unit), one at a time, without a shell. On standard input it has the
lines that -o json prints, and in the environment
  WATCH_REVISION  the revision
  WATCH_TYPE      PUT or DELETE of one key, BATCH of several, or STATE, DELTA, RESYNC,
                  CONFLATED
  WATCH_KEY       the key, if it is one PUT or DELETE
The position is saved after each success. If CMD fails, the watch ends with status 1,
and with --resume-file CMD has that update again next time. While CMD runs, updates
wait: in cachectl up to 4 MiB, then at the nodes, which send a delta in place of events
that they no longer have. Ctrl-C and SIGTERM end the watch: a CMD that runs has SIGTERM
and --timeout to end.`,
		Example: `  cachectl watch /demo/a                     one key
  cachectl watch --prefix /demo/             all keys below /demo/
  cachectl watch --prefix "" -o json         everything, an object per line
  cachectl watch --prefix /demo/ --state     what is there, then what changes
  cachectl watch --prefix /demo/ --from 42   every change since revision 42
  cachectl watch --prefix /demo/ --conflate 1s  what has changed, once a second
  cachectl watch --prefix /demo/ --state --resume-file demo.pos -- ./apply.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n > 0 {
				if args, f.command = args[:n], args[n:]; len(f.command) == 0 {
					return &usageError{cmd.CommandPath(), errors.New("CMD is missing after --")}
				}
			}
			return takes("KEY")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			rng, err := span(args[0], f.prefix, f.rangeEnd)
			switch {
			case err != nil:
			case f.state && f.from != 0:
				err = errors.New("--state and --from exclude each other")
			case f.from < 0:
				err = fmt.Errorf("--from %d: revisions are positive", f.from)
			case f.conflate != 0 && (f.conflate < 10*time.Millisecond || f.conflate > time.Hour):
				err = fmt.Errorf("--conflate %v: from 10ms to 1h", f.conflate)
			case f.conflate != 0 && (f.noSync || f.prev):
				err = errors.New("--conflate excludes --no-sync and --prev")
			case f.maxStaleness != 0 && f.maxStaleness < 100*time.Millisecond:
				err = fmt.Errorf("--max-staleness %v: at least 100ms", f.maxStaleness)
			case len(f.command) > 0:
				_, err = exec.LookPath(f.command[0])
			}
			if err != nil {
				return &usageError{cmd.CommandPath(), err}
			}
			if strings.HasSuffix(args[0], "/") && !f.prefix && f.rangeEnd == "" {
				s.advise("this watches one key; all keys that begin with it: cachectl watch --prefix " + show([]byte(args[0])))
			}
			s.logger = slog.New(heard{s.p.stderr}) // a watch goes on without an answer: it must not look quiet
			return s.with(cmd, func(ctx context.Context, c *client.Client) error { return f.run(ctx, s, c, rng) })
		},
	}
	cmd.Flags().BoolVar(&f.prefix, "prefix", false, "watch all keys that begin with KEY")
	cmd.Flags().StringVar(&f.rangeEnd, "range-end", "", "watch the keys from KEY on and below this one")
	cmd.Flags().Int64Var(&f.from, "from", 0, "the first revision to print; it may lie in the future (default: now)")
	cmd.Flags().BoolVar(&f.state, "state", false, "print what is there first")
	cmd.Flags().BoolVar(&f.prev, "prev", false, "print the value before each change, too")
	cmd.Flags().Int64Var(&f.count, "count", 0, "end after so many lines, BEGIN and END not counted (default: never)")
	cmd.Flags().BoolVar(&f.noSync, "no-sync", false, "print every change or end: take no unit in place of changes that are gone")
	cmd.Flags().DurationVar(&f.conflate, "conflate", 0, "print at most one unit in so much time, with the newest value of each key")
	cmd.Flags().StringVar(&f.resume, "resume-file", "", "continue after the position in this file, and save it there after each update")
	cmd.Flags().DurationVar(&f.maxStaleness, "max-staleness", 0, "look for another node when the data is older than this (default: any age will do)")
	return cmd
}

func (f *watchFlags) run(ctx context.Context, s *session, c *client.Client, rng client.Range) (err error) {
	cluster, err := s.reach(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	opts := f.options(s)
	var resume *resumeFile
	if f.resume != "" {
		if resume, err = openResume(f.resume, rng); err == nil {
			err = resume.belongs(cluster)
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, resume.save()) }()
		opts = append(opts, client.WithProgress()) // a quiet range has a position, too
	}
	w := c.Watch(ctx, rng, append(opts, f.beginning(resume))...)
	defer w.Close()
	left := f.count
	for u, err := range w.Updates() {
		if ctx.Err() != nil {
			return nil // Ctrl-C is how a watch ends
		}
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		if ended, err := f.deal(ctx, s, u, &left); ended || err != nil {
			return err
		}
		if resume != nil {
			if err := resume.passed(&u, len(f.command) == 0 && w.Stats().Updates > 0); err != nil {
				return err
			}
		}
		if f.count > 0 && left <= 0 {
			return nil
		}
	}
	return nil
}

// options are those of the client's watch but its beginning.
func (f *watchFlags) options(s *session) []client.WatchOption {
	opts := []client.WatchOption{client.OnResume(func(r client.Resume) {
		if r.From != r.To {
			fmt.Fprintf(s.p.stderr, "cachectl: moved from %s to %s behind revision %d: %v\n", r.From, r.To, r.Revision, r.Reason)
		}
	})}
	if f.prev {
		opts = append(opts, client.WithPrevKV())
	}
	if f.noSync {
		opts = append(opts, client.WithoutSync())
	}
	if f.conflate > 0 {
		opts = append(opts, client.WithConflation(f.conflate))
	}
	if f.maxStaleness > 0 {
		opts = append(opts, client.WithMaxStaleness(f.maxStaleness))
	}
	return opts
}

// beginning says where the watch begins: after the position of the resume file, nil: there
// is none, if it has one.
func (f *watchFlags) beginning(resume *resumeFile) client.WatchOption {
	switch {
	case resume != nil && resume.disk != client.Position{}:
		return client.FromPosition(resume.disk)
	case f.state:
		return client.WithState()
	}
	return client.FromRevision(f.from) // 0: now
}

// deal prints an update, or has the command deal with it. It takes the lines off left,
// and reports whether the watch ends before the update was dealt with.
func (f *watchFlags) deal(ctx context.Context, s *session, u client.Update, left *int64) (ended bool, err error) {
	all := linesOf(u)
	if len(f.command) > 0 {
		if err := s.handle(ctx, f.command, u); err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return true, err
		}
	}
	for i, l := range all {
		if len(f.command) == 0 {
			if err := f.line(s, l); err != nil {
				return true, err
			}
		}
		if l.unit != nil {
			continue
		}
		if *left--; *left == 0 && len(f.command) == 0 && i < len(all)-1 {
			return true, nil
		}
	}
	return false, nil
}

// line is one line of output: of a key, or the first or last one of a unit.
type line struct {
	what     string
	revision int64
	e        client.Event
	unit     *client.Update // nil: of a key
}

func linesOf(u client.Update) []line {
	var out []line
	for _, e := range u.Events {
		out = append(out, line{what: e.Type.String(), revision: u.Revision, e: e})
	}
	if u.Kind == client.KindBatch || u.Kind == client.KindProgress {
		return out
	}
	what := "STATE"
	if changes(u) {
		what = "PUT"
	}
	out = append(out, line{what: "BEGIN", revision: u.Revision, unit: &u})
	for _, kv := range u.KVs {
		out = append(out, line{what: what, revision: kv.ModRevision, e: client.Event{KV: kv}})
	}
	for _, key := range u.Deleted {
		out = append(out, line{what: "DELETE", revision: u.Revision, e: client.Event{Type: client.EventDelete, KV: client.KeyValue{Key: key}}})
	}
	return append(out, line{what: "END", revision: u.Revision, unit: &u})
}

// changes says whether a unit tells what has changed, and not all there is.
func changes(u client.Update) bool {
	return u.Kind == client.KindDelta || u.Kind == client.KindConflated
}

func (f *watchFlags) line(s *session, l line) error {
	if s.structured() {
		return s.oneDocument(jsonOf(l))
	}
	return lines(s.p.stdout, strings.TrimRight(f.text(l), " "))
}

func jsonOf(l line) any {
	switch {
	case l.unit == nil:
		out := eventJSON{Type: l.what, Revision: l.revision, keyValueJSON: keyValueOf(l.e.KV, l.e.Type == client.EventPut)}
		if l.e.Prev != nil {
			prev := keyValueOf(*l.e.Prev, true)
			out.Prev = &prev
		}
		return out
	case l.what == "END":
		return unitJSON{Type: l.what, Revision: l.revision, Unit: l.unit.Kind.String()}
	}
	keys := len(l.unit.KVs) + len(l.unit.Deleted)
	return unitJSON{
		Type: l.what, Revision: l.revision, Unit: l.unit.Kind.String(), From: l.unit.From, ClusterID: l.unit.Cluster, Lineage: l.unit.Lineage, Keys: &keys,
	}
}

func (f *watchFlags) text(l line) string {
	text := fmt.Sprintf("%-6s  %d  ", l.what, l.revision)
	switch u := l.unit; {
	case u == nil:
		text += show(l.e.KV.Key)
		if l.e.Type == client.EventPut {
			text += "  " + show(l.e.KV.Value)
		}
		if f.prev && l.e.Prev != nil {
			text += "  (was " + show(l.e.Prev.Value) + ")"
		}
	case l.what == "END":
		text += u.Kind.String()
	case changes(*u):
		text += fmt.Sprintf("%v from %d: %d changed, %d deleted", u.Kind, u.From, len(u.KVs), len(u.Deleted))
	case u.Kind == client.KindResync:
		text += fmt.Sprintf("resync of lineage %d in cluster %s: %d keys, any other is gone", u.Lineage, u.Cluster, len(u.KVs))
	default:
		text += fmt.Sprintf("%v: %d keys", u.Kind, len(u.KVs))
	}
	return text
}

// heard is a log for a person: a line for each record, without a time.
type heard struct{ w io.Writer }

// Enabled implements slog.Handler.
func (heard) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements slog.Handler.
func (h heard) Handle(_ context.Context, r slog.Record) error {
	line := "cachectl: " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(", %s %v", strings.ReplaceAll(a.Key, "_", " "), a.Value)
		return true
	})
	_, err := fmt.Fprintln(h.w, line)
	return err //nolint:wrapcheck // standard error is gone
}

// WithAttrs implements slog.Handler; the client adds none.
func (h heard) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler; the client has none.
func (h heard) WithGroup(string) slog.Handler { return h }
