package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

func newTraceCommand(s *cli.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "trace REVISION",
		Short: "Trace a revision from etcd to the last watch",
		Long: `trace collects the trace of a revision from every node and draws its path: which node
received it from etcd, which nodes received it from that node, and when it was sent to
watches. Every node keeps the last 4,096 revisions of its shards in memory; no setup is
needed.

  received  the revision had arrived completely. The first time is from the clock of
            the first node; the others are differences to it by each node's own clock,
            so they include the clock skew between machines
  applied   the revision could be read there, and its watches were woken
  nodes     the revision was sent to nodes that follow this one: how many, and when to
            the first and to the last
  watches   the same for the watches of clients

All times but "received" count from the node's own "received" and are exact. "last"
grows while slow watches are sent the revision. put and del print the revision of a
write, and etcd returns it.`,
		Example: `  cachectl trace $(cachectl put /demo/a 1 -o json | jq .revision)
  cachectl trace 4711 -o json`,
		Args:              cli.Takes("REVISION"),
		ValidArgsFunction: completesRevision(s),
		RunE: func(cmd *cobra.Command, args []string) error {
			revision, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || revision <= 0 {
				return cli.Usage(cmd, fmt.Errorf("REVISION %q: want a number above 0", args[0]))
			}
			return s.Within(cmd, func(ctx context.Context, c *client.Client) error {
				return trace(ctx, s, c, revision)
			})
		},
	}
}

// completesRevision completes REVISION with the newest one.
func completesRevision(s *cli.Session) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		cli.Complete(s, cmd, func(ctx context.Context, c *client.Client) error {
			status, err := admin.New(c).Status(ctx, "")
			if err == nil {
				out = append(out, cli.Number(status.EtcdRevision))
			}
			return err //nolint:wrapcheck // it is not printed
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// traceOf is a node's report of a revision.
type traceOf struct {
	node  string
	trace admin.RevisionTrace
	err   error
}

// alive returns the members that are neither dead nor left.
func alive(members []admin.Member) []admin.Member {
	return slices.DeleteFunc(members, func(m admin.Member) bool { return m.State == admin.MemberDead || m.State == admin.MemberLeft })
}

// askEach calls ask for all members concurrently, and returns the answers in the order of the members.
func askEach[T any](members []admin.Member, ask func(admin.Member) T) []T {
	answers := make([]T, len(members))
	var asking sync.WaitGroup
	for i, m := range members {
		asking.Go(func() { answers[i] = ask(m) })
	}
	asking.Wait()
	return answers
}

func trace(ctx context.Context, s *cli.Session, c *client.Client, revision int64) error {
	members, err := admin.New(c).Members(ctx)
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	answers := askEach(alive(members), func(m admin.Member) (a traceOf) {
		a.node = m.Name
		a.trace, a.err = admin.New(c).TraceRevision(ctx, m.ClientAddress, revision)
		return a
	})
	var silent, known []traceOf
	for _, a := range answers {
		switch {
		case a.err != nil:
			silent = append(silent, a)
		case !a.trace.Received.IsZero():
			known = append(known, a)
		}
	}
	if len(silent) == len(answers) && len(silent) > 0 {
		return silent[0].err
	}
	slices.SortStableFunc(known, func(a, b traceOf) int {
		return cmp.Or(a.trace.Received.Compare(b.trace.Received), cmp.Compare(a.node, b.node))
	})
	if s.Structured() {
		if err := printTraceJSON(s, revision, known, silent); err != nil || len(known) > 0 {
			return err
		}
	}
	if len(known) == 0 {
		return forgotten(revision, answers)
	}
	if err := drawTrace(s.Process.Stdout, revision, known); err != nil {
		return err
	}
	for _, a := range silent {
		if err := cli.Lines(s.Process.Stdout, fmt.Sprintf("%s does not answer: %v", a.node, a.err)); err != nil {
			return err
		}
	}
	return nil
}

// forgotten returns the error of a revision that no node has a trace of, with the reason.
func forgotten(revision int64, answers []traceOf) error {
	var newest int64
	var spans []string
	for _, a := range answers {
		newest = max(newest, a.trace.Newest)
		switch {
		case a.err != nil:
			spans = append(spans, fmt.Sprintf("%s does not answer", a.node))
		case a.trace.Newest == 0:
			spans = append(spans, a.node+" has received no write since its start")
		default:
			spans = append(spans, fmt.Sprintf("%s has %d to %d", a.node, a.trace.Oldest, a.trace.Newest))
		}
	}
	why := "it changed no served key, or its trace was dropped"
	if revision > newest {
		why = "no node has reached it"
	}
	return errors.New("no node has a trace of revision " + cli.Number(revision) + ": " + why + " (" + strings.Join(spans, ", ") + ")")
}

// drawTrace draws a tree: below each node, the nodes that received the revision from it.
func drawTrace(w io.Writer, revision int64, known []traceOf) error {
	first := known[0].trace
	shards := map[string]bool{}
	var names []string
	for _, a := range known {
		for _, h := range a.trace.Hops {
			if name := strconv.FormatUint(h.Shard, 10); !shards[name] {
				shards[name] = true
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	word := "shard"
	if len(names) > 1 {
		word = "shards"
	}
	if err := cli.Lines(w, fmt.Sprintf("revision %d, %s %s", revision, word, strings.Join(names, ", "))); err != nil {
		return err
	}
	d := &traceDrawing{w: w, began: first.Received, known: known, drawn: map[string]bool{}}
	d.root(etcdSource, etcdSource)
	for _, a := range known {
		if !d.drawn[a.node] {
			d.root(a.source(), a.source()+" (not reported)")
		}
	}
	return d.err
}

// etcdSource is the source of the nodes that received the revision from etcd.
const etcdSource = "etcd"

// root draws a source that is not a node, or a node without a trace, and all nodes below it.
func (d *traceDrawing) root(source, text string) {
	if !slices.ContainsFunc(d.known, func(a traceOf) bool { return a.source() == source && !d.drawn[a.node] }) {
		return
	}
	if d.err == nil {
		d.err = cli.Lines(d.w, text)
	}
	d.below(source, "")
}

type traceDrawing struct {
	w     io.Writer
	began time.Time
	known []traceOf
	drawn map[string]bool
	err   error
}

// source returns the node from which a received the revision, or etcdSource.
func (a *traceOf) source() string {
	for _, h := range a.trace.Hops {
		if h.Source == admin.SourceEtcd {
			return etcdSource
		}
	}
	for _, h := range a.trace.Hops {
		if h.SourceNode != "" {
			return h.SourceNode
		}
	}
	return "a source that was lost later"
}

// below draws the nodes that received the revision from a source.
func (d *traceDrawing) below(source, indent string) {
	var from []traceOf
	for _, a := range d.known {
		if a.source() == source && !d.drawn[a.node] {
			d.drawn[a.node] = true
			from = append(from, a)
		}
	}
	for i, a := range from {
		d.node(a, indent, i == len(from)-1)
	}
}

func (d *traceDrawing) node(a traceOf, indent string, last bool) {
	d.drawn[a.node] = true
	branch, under := "├─▶ ", "│   "
	if last {
		branch, under = "└─▶ ", "    "
	}
	t := a.trace
	received := t.Received.Local().Format("2006-01-02 15:04:05.000000")
	if !t.Received.Equal(d.began) {
		received = signed(t.Received.Sub(d.began)) + " by its clock"
	}
	d.line(indent, branch, a.node, "received "+received)
	applied := time.Duration(0)
	relay := ""
	for _, h := range t.Hops {
		applied = max(applied, h.Applied)
		if h.Relay {
			relay = " (relay)"
		}
	}
	d.line(indent, under, "", "applied  "+signed(applied)+relay)
	if t.Nodes.Times > 0 {
		d.line(indent, under, "", fmt.Sprintf("nodes    %s, %d", between(t.Nodes), t.Nodes.Times))
	}
	if t.Watches.Times > 0 {
		d.line(indent, under, "", fmt.Sprintf("watches  %s, %d", between(t.Watches), t.Watches.Times))
	}
	d.below(a.node, indent+under)
}

func (d *traceDrawing) line(indent, branch, name, text string) {
	if d.err == nil {
		_, err := fmt.Fprintf(d.w, "%s%s%-8s %s\n", indent, branch, name, text)
		if err != nil {
			d.err = fmt.Errorf("write: %w", err)
		}
	}
}

func between(s admin.RevisionSent) string {
	if s.First == s.Last {
		return signed(s.First)
	}
	return signed(s.First) + " to " + signed(s.Last)
}

// signed formats a duration with its sign: in µs, in ms with three significant digits, or in s with three decimals.
func signed(d time.Duration) string {
	sign := "+"
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%s%dµs", sign, d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%s%.3gms", sign, float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%s%.3fs", sign, d.Seconds())
}

type traceJSON struct {
	Node     string         `json:"node"`
	Received time.Time      `json:"received"`
	Hops     []traceHopJSON `json:"hops"`
	Nodes    *traceSentJSON `json:"nodes,omitempty"`
	Watches  *traceSentJSON `json:"watches,omitempty"`
}

// traceHopJSON and traceSentJSON have times relative to the node's received.
type traceHopJSON struct {
	Shard           uint64  `json:"shard"`
	Relay           bool    `json:"relay,omitempty"`
	Source          string  `json:"source"`
	SourceNode      string  `json:"source_node,omitempty"`
	ReceivedSeconds float64 `json:"received_seconds"`
	AppliedSeconds  float64 `json:"applied_seconds"`
}

type traceSentJSON struct {
	Times        int64   `json:"times"`
	FirstSeconds float64 `json:"first_seconds"`
	LastSeconds  float64 `json:"last_seconds"`
}

func printTraceJSON(s *cli.Session, revision int64, known, silent []traceOf) error {
	sent := func(r admin.RevisionSent) *traceSentJSON {
		if r.Times == 0 {
			return nil
		}
		return &traceSentJSON{r.Times, r.First.Seconds(), r.Last.Seconds()}
	}
	out := struct {
		Revision int64             `json:"revision"`
		Nodes    []traceJSON       `json:"nodes"`
		Failed   []cli.FailureJSON `json:"failed,omitempty"`
	}{Revision: revision, Nodes: []traceJSON{}}
	for _, a := range known {
		t := a.trace
		j := traceJSON{Node: a.node, Received: t.Received, Nodes: sent(t.Nodes), Watches: sent(t.Watches)}
		for _, h := range t.Hops {
			j.Hops = append(j.Hops, traceHopJSON{h.Shard, h.Relay, h.Source.String(), h.SourceNode, h.Received.Seconds(), h.Applied.Seconds()})
		}
		out.Nodes = append(out.Nodes, j)
	}
	for _, a := range silent {
		out.Failed = append(out.Failed, cli.FailureJSON{Node: a.node, Error: a.err.Error()})
	}
	return s.Document(out)
}
