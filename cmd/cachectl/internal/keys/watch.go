package keys

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
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

type watchFlags struct {
	prefix, state, prev, noResync bool
	rangeEnd                      string
	from, count                   int64
	conflate, maxStaleness        time.Duration
	resume                        string
	command                       []string // run for each update; empty: updates are printed
}

func newWatchCommand(s *cli.Session) *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:        "watch KEY [-- CMD [ARG...]]",
		SuggestFor: []string{"follow", "tail"},
		Short:      "Watch a key or range",
		Long: `watch prints a line for every change, in order and exactly once: PUT or DELETE, the
revision, the key, the value. Ctrl-C ends it. If its node dies, it resumes on another
node after its last revision, and reports that on standard error.

Units are enclosed by a line BEGIN and a line END and are printed completely or not at
all. With --state, the first unit is the state: a line STATE for each key, with the
revision of its last change. If the individual changes are no longer available, a delta
follows: PUT for each changed key and DELETE for each deleted key, with the delta's
revision. If no node can compute the delta, if etcd was restored, or if another cluster
answers, a resync follows: STATE for each key that exists; all other keys are gone.
With --no-resync the watch ends instead, with status 1. With --conflate, all changes come
in units, with the newest value of each key.

With --resume-file the watch continues after the last update that an earlier watch with
that file printed completely. If the file has no position, the other flags apply. The
file is saved atomically after each update, or ten times a second if updates queue:
after a crash some lines may be printed again, but none is lost.

With -- CMD watch prints nothing. CMD runs once for each update (all changes of a
revision, or a unit), one at a time, without a shell. It reads the lines of -o json on
standard input, and has these environment variables:
  WATCH_REVISION  the revision
  WATCH_TYPE      PUT or DELETE of one key, BATCH of several, or STATE, DELTA, RESYNC,
                  CONFLATED
  WATCH_KEY       the key, if it is one PUT or DELETE
The position is saved after each success. If CMD fails, the watch ends with status 1,
and with --resume-file the next run of CMD gets that update again. While CMD runs,
updates queue: up to 4 MiB in cachectl, then at the nodes, which send a delta in place
of evicted events. Ctrl-C and SIGTERM end the watch: a running CMD gets SIGTERM and has
--timeout to end.`,
		Example: `  cachectl watch /demo/a                     one key
  cachectl watch --prefix /demo/             all keys below /demo/
  cachectl watch --prefix "" -o json         all keys, an object per line
  cachectl watch --prefix /demo/ --state     the current state, then changes
  cachectl watch --prefix /demo/ --from 42   every change since revision 42
  cachectl watch --prefix /demo/ --conflate 1s  the changed keys, once a second
  cachectl watch --prefix /demo/ --state --resume-file demo.pos -- ./apply.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n > 0 {
				if args, f.command = args[:n], args[n:]; len(f.command) == 0 {
					return cli.Usage(cmd, errors.New("CMD is missing after --"))
				}
			}
			return cli.Takes("KEY")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			rng, err := f.check(args[0])
			if err != nil {
				return cli.Usage(cmd, err)
			}
			if strings.HasSuffix(args[0], "/") && !f.prefix && f.rangeEnd == "" {
				s.Advise("this watches one key; all keys that begin with it: cachectl watch --prefix " + document.Text([]byte(args[0])))
			}
			s.Logger = slog.New(heard{s.Process.Stderr}) // a watch without an answer must not look like a quiet watch
			return s.With(cmd, func(ctx context.Context, c *client.Client) error { return f.run(ctx, s, c, rng) })
		},
	}
	cmd.Flags().BoolVar(&f.prefix, "prefix", false, "watch all keys that begin with KEY")
	cmd.Flags().StringVar(&f.rangeEnd, "range-end", "", "watch the keys from KEY on and below this one")
	cmd.Flags().Int64Var(&f.from, "from", 0, "the first revision to print; it may be in the future (default: now)")
	cmd.Flags().BoolVar(&f.state, "state", false, "print the current state first")
	cmd.Flags().BoolVar(&f.prev, "prev", false, "also print the value before each change")
	cmd.Flags().Int64Var(&f.count, "count", 0, "end after this number of lines, without BEGIN and END (default: never)")
	cmd.Flags().BoolVar(&f.noResync, "no-resync", false, "end the watch if changes were evicted, instead of printing a delta or the state")
	cmd.Flags().DurationVar(&f.conflate, "conflate", 0, "print at most one unit per interval, with the newest value of each key")
	cmd.Flags().StringVar(&f.resume, "resume-file", "", "continue after the position in this file, and save it there after each update")
	cmd.Flags().DurationVar(&f.maxStaleness, "max-staleness", 0, "switch to another node when the data is older than this (default: any age)")
	return cmd
}

// check returns the range of KEY. It fails if flags exclude each other or are out of
// bounds, or if CMD is not found.
func (f *watchFlags) check(key string) (client.Range, error) {
	rng, err := cli.Span(key, f.prefix, f.rangeEnd)
	switch {
	case err != nil:
	case f.state && f.from != 0:
		err = errors.New("--state and --from exclude each other")
	case f.from < 0:
		err = fmt.Errorf("--from %d: revisions are positive", f.from)
	case f.conflate != 0 && (f.conflate < 10*time.Millisecond || f.conflate > time.Hour):
		err = fmt.Errorf("--conflate %v: from 10ms to 1h", f.conflate)
	case f.conflate != 0 && (f.noResync || f.prev):
		err = errors.New("--conflate excludes --no-resync and --prev")
	case f.maxStaleness != 0 && f.maxStaleness < 100*time.Millisecond:
		err = fmt.Errorf("--max-staleness %v: at least 100ms", f.maxStaleness)
	case len(f.command) > 0:
		_, err = exec.LookPath(f.command[0])
	}
	return rng, err
}

func (f *watchFlags) run(ctx context.Context, s *cli.Session, c *client.Client, rng client.Range) (err error) {
	cluster, err := s.Reach(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	opts := f.options(s)
	var resume *resumeFile
	if f.resume != "" {
		if resume, err = openResume(ctx, f.resume, rng); err == nil {
			err = resume.belongs(cluster)
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, resume.save()) }()
		opts = append(opts, client.WithProgress()) // to save positions of quiet ranges, too
	}
	w := c.Watch(ctx, rng, append(opts, f.beginning(resume))...)
	defer w.Close()
	left := f.count
	for u, err := range w.Updates() {
		if ctx.Err() != nil {
			return nil // Ctrl-C is the regular end of a watch
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

// options returns the options of the client's watch, except its beginning.
func (f *watchFlags) options(s *cli.Session) []client.WatchOption {
	opts := []client.WatchOption{client.OnResume(func(r client.Resume) {
		if r.From != r.To {
			fmt.Fprintf(s.Process.Stderr, "cachectl: moved from %s to %s after revision %d: %v\n", r.From, r.To, r.Revision, r.Reason)
		}
	})}
	if f.prev {
		opts = append(opts, client.WithPrevKV())
	}
	if f.noResync {
		opts = append(opts, client.WithoutResync())
	}
	if f.conflate > 0 {
		opts = append(opts, client.WithConflation(f.conflate))
	}
	if f.maxStaleness > 0 {
		opts = append(opts, client.WithMaxStaleness(f.maxStaleness))
	}
	return opts
}

// beginning returns the start of the watch: after the position of the resume file, if it
// has one. resume is nil without a resume file.
func (f *watchFlags) beginning(resume *resumeFile) client.WatchOption {
	switch {
	case resume != nil && resume.start != client.Position{}:
		return client.FromPosition(resume.start)
	case f.state:
		return client.WithState()
	}
	return client.FromRevision(f.from) // 0: now
}

// deal prints an update, or runs the command for it. It subtracts the printed lines from left,
// and reports whether the watch ends before the update is handled completely.
func (f *watchFlags) deal(ctx context.Context, s *cli.Session, u client.Update, left *int64) (ended bool, err error) {
	all := linesOf(u)
	if len(f.command) > 0 {
		if err := handle(ctx, s, f.command, u); err != nil {
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

// line is a line of output: of a key, or the first or last line of a unit.
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

// changes reports whether a unit has changes, not the whole state.
func changes(u client.Update) bool {
	return u.Kind == client.KindDelta || u.Kind == client.KindConflated
}

func (f *watchFlags) line(s *cli.Session, l line) error {
	if s.Structured() {
		return s.OneDocument(jsonOf(l))
	}
	return cli.Lines(s.Process.Stdout, strings.TrimRight(f.text(l), " "))
}

func jsonOf(l line) any {
	switch {
	case l.unit == nil:
		out := cli.EventJSON{Type: l.what, Revision: l.revision, KeyValueJSON: cli.KeyValueOf(l.e.KV, l.e.Type == client.EventPut)}
		if l.e.Prev != nil {
			prev := cli.KeyValueOf(*l.e.Prev, true)
			out.Prev = &prev
		}
		return out
	case l.what == "END":
		return cli.UnitJSON{Type: l.what, Revision: l.revision, Unit: l.unit.Kind.String()}
	}
	keys := len(l.unit.KVs) + len(l.unit.Deleted)
	return cli.UnitJSON{
		Type: l.what, Revision: l.revision, Unit: l.unit.Kind.String(), From: l.unit.From, ClusterID: l.unit.Cluster, Lineage: l.unit.Lineage, Keys: &keys,
	}
}

func (f *watchFlags) text(l line) string {
	text := fmt.Sprintf("%-6s  %d  ", l.what, l.revision)
	switch u := l.unit; {
	case u == nil:
		text += document.Text(l.e.KV.Key)
		if l.e.Type == client.EventPut {
			text += "  " + document.Text(l.e.KV.Value)
		}
		if f.prev && l.e.Prev != nil {
			text += "  (was " + document.Text(l.e.Prev.Value) + ")"
		}
	case l.what == "END":
		text += u.Kind.String()
	case changes(*u):
		text += fmt.Sprintf("%v from %d: %d changed, %d deleted", u.Kind, u.From, len(u.KVs), len(u.Deleted))
	case u.Kind == client.KindResync:
		text += fmt.Sprintf("resync of lineage %d in cluster %s: %d keys, all others are gone", u.Lineage, u.Cluster, len(u.KVs))
	default:
		text += fmt.Sprintf("%v: %d keys", u.Kind, len(u.KVs))
	}
	return text
}

// heard is a log handler for people: a line for each record, without a time.
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
