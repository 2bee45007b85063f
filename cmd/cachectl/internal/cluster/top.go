package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

type topFlags struct {
	interval time.Duration
	once     bool
	sort     string
}

// topSorts are the values of --sort for shards, in the order of the help.
func topSorts() []string { return []string{"lag", "age", "watchers", "keys", "bytes", "id"} }

func newTopCommand(s *cli.Session) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show nodes, shards and watches, live",
		Long: `top shows the nodes, the shards that lag most and the watches that lag most, as many as
fit the terminal, and refreshes the display until Ctrl-C.

  OWNS      shards that the node watches at etcd
  AGE       age of the data; for a node, that of its oldest shard
  LAG       revisions by which a shard lags etcd, or a watch its node
  SPAN      age of the oldest event in the window
  BEHIND    age of the oldest event not yet sent to a watch

Without a terminal, with --once, and with -o json it prints one snapshot and ends.`,
		Example: `  cachectl top
  cachectl top --interval 500ms --sort watchers
  cachectl top --once | head -5
  cachectl top -o json | jq '.shards[] | {id, owner}'`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.interval < 100*time.Millisecond:
				return cli.Usage(cmd, fmt.Errorf("--interval %v: at least 100ms", f.interval))
			case !slices.Contains(topSorts(), f.sort):
				return cli.Usage(cmd, fmt.Errorf("--sort %q: use %s", f.sort, strings.Join(topSorts(), ", ")))
			}
			return s.With(cmd, func(ctx context.Context, c *client.Client) error { return top(ctx, s, c, f) })
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&f.interval, "interval", 2*time.Second, "refresh interval")
	flags.BoolVar(&f.once, "once", false, "print one snapshot and end")
	flags.StringVar(&f.sort, "sort", "lag", "of shards: "+strings.Join(topSorts(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(topSorts(), cobra.ShellCompDirectiveNoFileComp)) // fails without the flag
	return cmd
}

// moment is the cluster at one time.
type moment struct {
	at       time.Time
	cluster  admin.ClusterStatus
	shards   []cli.ShardJSON
	watchers []admin.WatcherStatus
	revision int64 // the newest revision of etcd that any node has read
}

// look queries all nodes.
func look(ctx context.Context, s *cli.Session, c *client.Client, f topFlags) (moment, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	cs, err := admin.New(c).ClusterStatus(ctx, s.Timeout/2)
	if err != nil {
		return moment{}, err //nolint:wrapcheck // says what it did
	}
	answers, err := askForWatchers(ctx, c, "", admin.WatcherFilter{})
	if err != nil {
		return moment{}, err
	}
	m := moment{at: time.Now(), cluster: cs, shards: shardsOf(cs)}
	for _, a := range answers { // m.cluster shows the nodes without an answer
		m.watchers = append(m.watchers, a.watchers...)
	}
	for _, n := range cs.Members {
		if n.Status != nil {
			m.revision = max(m.revision, n.Status.EtcdRevision)
		}
	}
	slices.SortStableFunc(m.watchers, func(a, b admin.WatcherStatus) int {
		return cmp.Or(cmp.Compare(b.Behind, a.Behind), cmp.Compare(b.Lag, a.Lag), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Client, b.Client), cmp.Compare(a.ID, b.ID))
	})
	slices.SortStableFunc(m.shards, topBy(f.sort))
	return m, nil
}

// topShard is a shard's row in top.
type topShard struct {
	lag, watchers, keys, bytes int64
	age, span                  float64
	ready                      int
}

func topOf(sh cli.ShardJSON) (t topShard) {
	for i, r := range sh.Replicas {
		t.watchers += r.Watchers
		if !r.Ready {
			continue
		}
		t.ready++
		t.lag, t.age = max(t.lag, r.Lag), max(t.age, r.AgeSeconds)
		if i == 0 || t.keys == 0 {
			t.keys, t.bytes, t.span = r.Keys, r.StateBytes+r.WindowBytes, r.WindowSpanSeconds
		}
	}
	return t
}

func topBy(sort string) func(a, b cli.ShardJSON) int {
	return func(a, b cli.ShardJSON) int {
		x, y := topOf(a), topOf(b)
		by := 0
		switch sort {
		case "lag":
			by = cmp.Compare(y.lag, x.lag)
		case "age":
			by = cmp.Compare(y.age, x.age)
		case "watchers":
			by = cmp.Compare(y.watchers, x.watchers)
		case "keys":
			by = cmp.Compare(y.keys, x.keys)
		case "bytes":
			by = cmp.Compare(y.bytes, x.bytes)
		}
		return cmp.Or(by, cmp.Compare(a.ID, b.ID))
	}
}

// Commands of terminals: use the other screen without a cursor, and return; move to the
// upper left corner; erase the rest of the line, and the lines below.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

func top(ctx context.Context, s *cli.Session, c *client.Client, f topFlags) error {
	screen, isFile := s.Process.Stdout.(*os.File)
	live := !f.once && !s.Structured() && isFile && term.IsTerminal(int(screen.Fd()))
	m, err := look(ctx, s, c, f)
	if err != nil {
		return err
	}
	if !live {
		if s.Structured() {
			return topJSON(s, m)
		}
		if _, err := fmt.Fprintln(s.Process.Stdout, strings.Join(topLines(m, moment{}, 0, 0), "\n")); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		return nil
	}
	if _, err := fmt.Fprint(screen, enterScreen); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	defer func() { _, _ = fmt.Fprint(screen, leaveScreen) }() // there is no other output for an error
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for before := m; ; {
		width, height, err := term.GetSize(int(screen.Fd()))
		if err != nil {
			width, height = 80, 24
		}
		text := strings.Join(topLines(m, before, width, height-1), clearLine+"\r\n")
		if _, err := fmt.Fprint(screen, home, text, clearLine, clearBelow); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		switch now, err := look(ctx, s, c, f); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, client.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded):
			// The last view stays, with its time, until a node answers again.
		case err != nil:
			return err
		default:
			before, m = m, now
		}
	}
}

// topLines formats a moment for a number of columns and lines; 0: any number. before
// is the previous moment, for rates per second.
func topLines(m, before moment, width, height int) []string {
	alive, watches := 0, int64(0)
	for _, n := range m.cluster.Members {
		if n.Status != nil {
			alive++
			watches += n.Status.Watches
		}
	}
	head := fmt.Sprintf("%d of %d nodes answer, %d shards, %d watches, etcd at %d", alive, len(m.cluster.Members), len(m.shards), watches, m.revision)
	if d := m.at.Sub(before.at).Seconds(); !before.at.IsZero() && d > 0 {
		head += fmt.Sprintf(", %.0f writes/s  (%s)", float64(m.revision-before.revision)/d, m.at.Format("15:04:05"))
	}
	out := []string{head}
	nodes, shards, watchers := topNodes(m), topShards(m), topWatchers(m)
	if height > 0 {
		// Nodes first, then shards; some lines are reserved for watches.
		room := height - len(out)
		fewest := min(len(watchers), 6)
		nodes = atMost(nodes, max(3, room/2))
		shards = atMost(shards, max(3, room-len(nodes)-fewest-2))
		watchers = atMost(watchers, max(2, room-len(nodes)-len(shards)-2))
	}
	for _, part := range [][]string{nodes, shards, watchers} {
		if len(part) > 1 {
			out = append(append(out, ""), part...)
		}
	}
	if height > 0 && len(out) > height {
		out = out[:height]
	}
	if width > 0 {
		for i, line := range out {
			if r := []rune(line); len(r) > width {
				out[i] = string(r[:width-1]) + "…"
			}
		}
	}
	return out
}

// atMost truncates a table, and reports that in its last line.
func atMost(rows []string, n int) []string {
	if len(rows) <= n {
		return rows
	}
	return append(slices.Clone(rows[:n-1]), fmt.Sprintf("and %d more", len(rows)-n+1))
}

// aligned returns rows as lines.
func aligned(rows [][]string) []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	_ = w.Flush() // a strings.Builder never fails
	out := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for i := range out {
		out[i] = strings.TrimRight(out[i], " ")
	}
	return out
}

func topNodes(m moment) []string {
	rows := [][]string{{"NODE", "STATE", "SHARDS", "OWNS", "AGE", "WATCHES", "CONNS", "MAP", "UPTIME"}}
	for _, n := range m.cluster.Members {
		row := []string{n.Member.Name, cli.StateOf(n.Member)}
		if n.Member.Leader {
			row[0] += " *"
		}
		st := n.Status
		if st == nil {
			rows = append(rows, append(row, "-", "-", "-", "-", "-", "-", "-"))
			continue
		}
		if len(st.NotReady) > 0 {
			row[1] += ", not ready"
		}
		owns, age := 0, time.Duration(0)
		for _, r := range st.Replicas {
			if r.Source == admin.SourceEtcd {
				owns++
			}
			age = max(age, r.Age)
		}
		rows = append(rows, append(row, fmt.Sprint(len(st.Replicas)), fmt.Sprint(owns), cli.TimeOf(age), cli.Number(st.Watches),
			cli.Number(st.Connections), fmt.Sprint(st.MapVersion), cli.TimeOf(st.Uptime)))
	}
	return aligned(rows)
}

func topShards(m moment) []string {
	rows := [][]string{{"SHARD", "FROM", "OWNER", "READY", "LAG", "AGE", "SPAN", "KEYS", "BYTES", "WATCHERS"}}
	for _, sh := range m.shards {
		t := topOf(sh)
		rows = append(rows, []string{
			fmt.Sprint(sh.ID), shorten(cli.OrDash(sh.Start), 16), cli.OrDash(sh.Owner), fmt.Sprintf("%d/%d", t.ready, len(sh.Replicas)),
			cli.Number(t.lag), cli.TimeOf(cli.Seconds(t.age)), cli.TimeOf(cli.Seconds(t.span)), cli.Number(t.keys), cli.BytesOf(t.bytes), cli.Number(t.watchers),
		})
	}
	return aligned(rows)
}

func topWatchers(m moment) []string {
	rows := [][]string{{"WATCH OF", "AT", "KEYS", "LAG", "BEHIND", "MODE", "RATE"}}
	for _, w := range m.watchers {
		rows = append(rows, []string{
			w.Client, w.Node, shorten(keysOf(w.Range), 20), cli.Number(w.Lag), cli.TimeOf(w.Behind), w.Mode.String(), cli.BytesOf(int64(w.BytesPerSecond)) + "/s",
		})
	}
	return aligned(rows)
}

// shorten truncates s to n characters.
func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func topJSON(s *cli.Session, m moment) error {
	out := struct {
		EtcdRevision int64           `json:"etcd_revision"`
		Nodes        []nodeJSON      `json:"nodes"`
		Shards       []cli.ShardJSON `json:"shards"`
		Watchers     []watcherJSON   `json:"watchers"`
	}{m.revision, []nodeJSON{}, m.shards, []watcherJSON{}}
	for _, n := range m.cluster.Members {
		out.Nodes = append(out.Nodes, nodeOf(n))
	}
	for _, w := range m.watchers {
		out.Watchers = append(out.Watchers, watcherOf(w))
	}
	return s.Document(out)
}
