package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

// watchersSorts are the values of --sort, in the order of the help.
func watchersSorts() []string {
	return []string{"lag", "behind", "bytes", "rate", "age", "resyncs", "client", "key"}
}

// watchersBy returns the order of a sort: the greatest first, except for names.
func watchersBy(sort string) func(a, b admin.WatcherStatus) int {
	return func(a, b admin.WatcherStatus) int {
		switch sort {
		case "lag":
			return cmp.Compare(b.Lag, a.Lag)
		case "behind":
			return cmp.Compare(b.Behind, a.Behind)
		case "bytes":
			return cmp.Compare(b.Bytes, a.Bytes)
		case "rate":
			return cmp.Compare(b.BytesPerSecond, a.BytesPerSecond)
		case "age":
			return a.Since.Compare(b.Since)
		case "resyncs":
			return cmp.Or(cmp.Compare(b.Resyncs, a.Resyncs), cmp.Compare(b.Deltas, a.Deltas))
		case "client":
			return cmp.Compare(a.Client, b.Client)
		}
		return cmp.Compare(a.Range.Start, b.Range.Start)
	}
}

type watchersFlags struct {
	key, prefix string
	minLag      int64
	sort, node  string
	top         int
}

func newWatchersCommand(s *cli.Session) *cobra.Command {
	var f watchersFlags
	cmd := &cobra.Command{
		Use:   "watchers",
		Short: "Show the open watches, their clients and their lag",
		Long: `watchers lists the watches of every node, of the native API and of etcd's API, one per
line, those that lag most first:

  CLIENT, USER, ID  the client's address, its etcd user, and the watch's ID there
  KEYS              the watched keys: a key, prefix* or [from, to)
  LAG, BEHIND       the number of revisions it was not sent yet, and the age of the
                    oldest; a client that reads slowly lags, and is not cut off
  MODE              the serve mode: window, delta (the changes since it fell behind),
                    resync (the whole state), conflated, or etcd's log
  SENT, RATE        bytes in total, and per second recently
  DELTAS, RESYNCS   how often it fell behind the window and got a delta or a resync

If etcd's authentication is on, it shows only watches of keys that --user may read.`,
		Example: `  cachectl watchers                               the watches that lag most
  cachectl watchers --min-lag 1000 --sort behind
  cachectl watchers --prefix /pods/ --top 0       all watches of keys there
  cachectl watchers --sort rate --node node-2 -o json`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(cmd)
			if err != nil {
				return cli.Usage(cmd, err)
			}
			return s.Within(cmd, func(ctx context.Context, c *client.Client) error {
				return watchers(ctx, s, c, f, filter)
			})
		},
	}
	flags := cmd.Flags()
	// Not --key: that is the file of a private key.
	flags.StringVar(&f.key, "watching", "", "only watches of this key")
	flags.StringVar(&f.prefix, "prefix", "", "only watches of keys with this prefix")
	flags.Int64Var(&f.minLag, "min-lag", 0, "only watches that lag by at least this number of revisions")
	flags.StringVar(&f.sort, "sort", "lag", strings.Join(watchersSorts(), ", "))
	flags.StringVar(&f.node, "node", "", "only the watches of the node with this name")
	flags.IntVar(&f.top, "top", 50, "number of watches to print; 0: all")
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(watchersSorts(), cobra.ShellCompDirectiveNoFileComp)) // fails without the flag
	_ = cmd.RegisterFlagCompletionFunc("node", completesNodes(s))
	return cmd
}

// filter returns the filter for the nodes, or the error of the flags.
func (f *watchersFlags) filter(cmd *cobra.Command) (out admin.WatcherFilter, err error) {
	out.MinLag = f.minLag
	switch {
	case cmd.Flags().Changed("watching") && cmd.Flags().Changed("prefix"):
		return out, errors.New("--watching and --prefix exclude each other")
	case cmd.Flags().Changed("watching"):
		out.Range, err = cli.Span(f.key, false, "")
	default:
		out.Range = client.Prefix(f.prefix)
	}
	switch {
	case err != nil:
		return out, fmt.Errorf("--watching: %w", err)
	case f.minLag < 0:
		return out, fmt.Errorf("--min-lag %d is negative", f.minLag)
	case f.top < 0:
		return out, fmt.Errorf("--top %d is negative", f.top)
	case !slices.Contains(watchersSorts(), f.sort):
		return out, fmt.Errorf("--sort %q: use %s", f.sort, strings.Join(watchersSorts(), ", "))
	}
	return out, nil
}

// completesNodes completes a flag with the names of the nodes.
func completesNodes(s *cli.Session) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		cli.Complete(s, cmd, func(ctx context.Context, c *client.Client) error {
			members, err := admin.New(c).Members(ctx)
			for _, m := range members {
				names = append(names, m.Name)
			}
			return err //nolint:wrapcheck // it is not printed
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// answerOf is a node's report of its watches.
type answerOf struct {
	node     string
	watchers []admin.WatcherStatus
	err      error
}

// askForWatchers queries the live nodes concurrently.
func askForWatchers(ctx context.Context, c *client.Client, node string, filter admin.WatcherFilter) ([]answerOf, error) {
	members, err := admin.New(c).Members(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // says what it did
	}
	if node != "" {
		members = slices.DeleteFunc(members, func(m admin.Member) bool { return m.Name != node })
		if len(members) == 0 {
			return nil, fmt.Errorf("--node %q: there is no such node; see cachectl members", node)
		}
	} else {
		members = alive(members)
	}
	return askEach(members, func(m admin.Member) (a answerOf) {
		a.node = m.Name
		a.watchers, a.err = admin.New(c).Watchers(ctx, m.ClientAddress, filter)
		return a
	}), nil
}

func watchers(ctx context.Context, s *cli.Session, c *client.Client, f watchersFlags, filter admin.WatcherFilter) error {
	answers, err := askForWatchers(ctx, c, f.node, filter)
	if err != nil {
		return err
	}
	var all []admin.WatcherStatus
	var silent []answerOf
	for _, a := range answers {
		if a.err != nil {
			silent = append(silent, a)
		}
		all = append(all, a.watchers...)
	}
	if len(silent) == len(answers) && len(silent) > 0 {
		return silent[0].err
	}
	byPlace := func(a, b admin.WatcherStatus) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Client, b.Client), cmp.Compare(a.ID, b.ID))
	}
	by := watchersBy(f.sort)
	slices.SortFunc(all, func(a, b admin.WatcherStatus) int { return cmp.Or(by(a, b), byPlace(a, b)) })
	more := 0
	if f.top > 0 && len(all) > f.top {
		more = len(all) - f.top
		all = all[:f.top]
	}
	if s.Structured() {
		return watchersJSON(s, all, more, silent)
	}
	if err := watchersTable(s, all); err != nil {
		return err
	}
	var notes []string
	if more > 0 {
		notes = append(notes, fmt.Sprintf("and %d more; --top 0 shows all", more))
	}
	for _, a := range silent {
		notes = append(notes, fmt.Sprintf("%s does not answer: %v", a.node, a.err))
	}
	return cli.Lines(s.Process.Stdout, notes...)
}

func watchersTable(s *cli.Session, all []admin.WatcherStatus) error {
	t := &cli.Table{}
	t.Row("NODE", "CLIENT", "USER", "API", "ID", "KEYS", "REVISION", "LAG", "BEHIND", "MODE", "SENT", "RATE", "AGE", "DELTAS", "RESYNCS")
	for _, w := range all {
		t.Row(w.Node, cli.OrDash(w.Client), cli.OrDash(w.User), w.API.String(), cli.Number(w.ID), keysOf(w.Range), cli.Number(w.Revision),
			cli.Number(w.Lag), cli.TimeOf(w.Behind), w.Mode.String(), cli.BytesOf(w.Bytes), cli.BytesOf(int64(w.BytesPerSecond))+"/s", cli.TimeOf(time.Since(w.Since)),
			cli.Number(w.Deltas), cli.Number(w.Resyncs))
	}
	return t.Write(s.Process.Stdout)
}

// keysOf formats a range for people: a key, a prefix and "*", or [from, to).
func keysOf(r client.Range) string {
	switch {
	case r == client.Range{}:
		return "*"
	case r == client.Key(r.Start):
		return document.Text([]byte(r.Start))
	case r == client.Prefix(r.Start):
		return document.Text([]byte(r.Start)) + "*"
	case r.End == "":
		return fmt.Sprintf("[%s, end)", document.Text([]byte(r.Start)))
	}
	return fmt.Sprintf("[%s, %s)", document.Text([]byte(r.Start)), document.Text([]byte(r.End)))
}

type watcherJSON struct {
	Node   string `json:"node"`
	Client string `json:"client"`
	User   string `json:"user,omitempty"`
	API    string `json:"api"`
	ID     int64  `json:"watch_id"`
	// The range, encoded as in cli.KeyValueJSON; an empty end is the end of the key space.
	Start          *string   `json:"start,omitempty"`
	StartBase64    []byte    `json:"start_base64,omitempty"`
	End            *string   `json:"end,omitempty"`
	EndBase64      []byte    `json:"end_base64,omitempty"`
	Revision       int64     `json:"revision"`
	Lag            int64     `json:"lag_revisions"`
	BehindSeconds  float64   `json:"behind_seconds"`
	Mode           string    `json:"mode"`
	Bytes          int64     `json:"bytes"`
	BytesPerSecond float64   `json:"bytes_per_second"`
	Since          time.Time `json:"since"`
	Deltas         int64     `json:"deltas"`
	Resyncs        int64     `json:"resyncs"`
}

func watchersJSON(s *cli.Session, all []admin.WatcherStatus, more int, silent []answerOf) error {
	out := struct {
		Watchers []watcherJSON     `json:"watchers"`
		More     int               `json:"more"`
		Failed   []cli.FailureJSON `json:"failed,omitempty"`
	}{Watchers: make([]watcherJSON, 0, len(all)), More: more}
	for _, w := range all {
		out.Watchers = append(out.Watchers, watcherOf(w))
	}
	for _, a := range silent {
		out.Failed = append(out.Failed, cli.FailureJSON{Node: a.node, Error: a.err.Error()})
	}
	return s.Document(out)
}

func watcherOf(w admin.WatcherStatus) watcherJSON {
	j := watcherJSON{
		Node: w.Node, Client: w.Client, User: w.User, API: w.API.String(), ID: w.ID, Revision: w.Revision, Lag: w.Lag,
		BehindSeconds: w.Behind.Seconds(), Mode: w.Mode.String(), Bytes: w.Bytes, BytesPerSecond: w.BytesPerSecond, Since: w.Since,
		Deltas: w.Deltas, Resyncs: w.Resyncs,
	}
	j.Start, j.StartBase64 = cli.Text([]byte(w.Range.Start))
	j.End, j.EndBase64 = cli.Text([]byte(w.Range.End))
	return j
}
