package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/internal/kube/report"
)

// maxNotes bounds the lines about resources that are not ready.
const maxNotes = 20

func newResourcesCommand(c *command) *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use:        "resources",
		SuggestFor: []string{"shards", "watches", "watchers", "objects"},
		Short:      "Show the resources that the nodes follow",
		Long: `resources prints a line for each resource and encoding that nodes follow; -o json has the
figures of each node.

  FOLLOWED BY       the node that follows it at an apiserver, and that apiserver; the other
                    nodes follow a node
  COPIES            nodes that have it, or load it
  OBJECTS, BYTES    size of the newest copy; the bytes include the window
  WATCHES           open watches on all nodes
  PROGRESS          the newest version on any node
  LAG               versions by which the slowest node lags PROGRESS; the reports are not
                    simultaneous, so a small lag is normal
  FLOOR             a watch from the version before this, or a later one, continues at each
                    node without a difference
  STATE             ready, or the nodes in another state: loading; failing, if the copy is
                    stale; withdrawn, if apiservers no longer serve the resource
  LOSSES            how often nodes lost the window, or continued over a gap

A loading node counts only for COPIES, STATE and LOSSES; a node for which the resource is
withdrawn, only for STATE.`,
		Example: `  cachectl kube resources --http kube-1:7480
  cachectl kube resources --node kube-2     that node's figures; LAG is relative to all nodes
  cachectl kube resources -o jsonpath='$.resources[?@.lag_versions > 1000].name'`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := c.ask(cmd)
			if err != nil {
				return err
			}
			return c.resources(t, node)
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "only the figures of the node with this name")
	_ = cmd.RegisterFlagCompletionFunc("node", c.completesNodes) // fails for a flag that does not exist
	return cmd
}

// The JSON form of kube resources; its field names are stable.
type (
	resourceJSON struct {
		Name       string         `json:"name"`
		Encoding   string         `json:"encoding"`
		FollowedBy []followerJSON `json:"followed_by"`
		Objects    int64          `json:"objects"`
		Bytes      int64          `json:"bytes"`
		Watches    int64          `json:"watches"`
		Progress   int64          `json:"progress"`
		Lag        int64          `json:"lag_versions"`
		Floor      int64          `json:"floor"`
		Losses     int64          `json:"losses"`
		Nodes      []copyJSON     `json:"nodes"`
	}
	followerJSON struct {
		Node      string `json:"node"`
		Apiserver string `json:"apiserver"`
	}
	copyJSON struct {
		Node     string `json:"node"`
		State    string `json:"state"`
		Error    string `json:"error,omitempty"`
		From     string `json:"from,omitempty"`
		Objects  int64  `json:"objects"`
		Bytes    int64  `json:"bytes"`
		Watches  int64  `json:"watches"`
		Progress int64  `json:"progress"`
		Lag      int64  `json:"lag_versions"`
		Floor    int64  `json:"floor"`
		Losses   int64  `json:"losses"`
	}
)

// serves reports whether the node serves the copy.
func (c copyJSON) serves() bool {
	return c.State != string(report.Loading) && c.State != string(report.Withdrawn)
}

// resourcesOf joins the reports of all nodes. If only is not empty, it includes only the copies of
// the node with that name.
func resourcesOf(nodes []node, only string) []resourceJSON {
	type key struct{ name, encoding string }
	all := map[key]*resourceJSON{}
	for _, n := range nodes {
		if n.silence != nil {
			continue
		}
		for _, r := range n.report.Resources {
			j := all[key{r.Name, r.Encoding}]
			if j == nil {
				j = &resourceJSON{Name: r.Name, Encoding: r.Encoding, FollowedBy: []followerJSON{}}
				all[key{r.Name, r.Encoding}] = j
			}
			if strings.Contains(r.From, "://") { // otherwise From is the name of a node
				j.FollowedBy = append(j.FollowedBy, followerJSON{n.name, r.From})
			}
			j.Nodes = append(j.Nodes, copyJSON{
				Node: n.name, State: string(r.State), Error: r.Error, From: r.From, Objects: r.Objects, Bytes: r.Bytes,
				Watches: r.Watches, Progress: r.Progress, Floor: r.Floor, Losses: r.Losses,
			})
		}
	}
	out := []resourceJSON{}
	for _, j := range all {
		if j.sum(only); len(j.Nodes) > 0 {
			out = append(out, *j)
		}
	}
	slices.SortFunc(out, func(a, b resourceJSON) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Encoding, b.Encoding))
	})
	return out
}

// sum computes the lags, removes the copies of nodes other than only, and sums up the rest.
func (r *resourceJSON) sum(only string) {
	newest := int64(0)
	for _, c := range r.Nodes {
		if c.serves() {
			newest = max(newest, c.Progress)
		}
	}
	if only != "" {
		r.Nodes = slices.DeleteFunc(r.Nodes, func(c copyJSON) bool { return c.Node != only })
	}
	for i := range r.Nodes {
		c := &r.Nodes[i]
		r.Losses += c.Losses
		if !c.serves() {
			continue
		}
		c.Lag = newest - c.Progress
		r.Watches += c.Watches
		r.Lag, r.Floor = max(r.Lag, c.Lag), max(r.Floor, c.Floor)
		if c.Progress > r.Progress {
			r.Progress, r.Objects, r.Bytes = c.Progress, c.Objects, c.Bytes
		}
	}
}

// row returns the resource as a row of the table.
func (r *resourceJSON) row() []string {
	var followers, states []string
	for _, f := range r.FollowedBy {
		followers = append(followers, f.Node+" at "+hostOf(f.Apiserver))
	}
	copies, served := 0, false
	for _, c := range r.Nodes {
		served = served || c.serves()
		if c.State != string(report.Withdrawn) {
			copies++
		}
		if c.State != string(report.Ready) {
			states = append(states, c.Node+" "+c.State)
		}
	}
	out := []string{r.Name, r.Encoding, cli.OrDash(strings.Join(followers, ", ")), fmt.Sprint(copies)}
	if served {
		out = append(out, cli.Number(r.Objects), cli.BytesOf(r.Bytes), cli.Number(r.Watches), cli.Number(r.Progress), cli.Number(r.Lag), cli.Number(r.Floor))
	} else {
		out = append(out, "-", "-", "-", "-", "-", "-")
	}
	return append(out, cmp.Or(strings.Join(states, ", "), string(report.Ready)), cli.Number(r.Losses))
}

func (c *command) resources(t tier, only string) error {
	if only != "" {
		at := slices.IndexFunc(t.nodes, func(n node) bool { return n.name == only })
		if at < 0 && slices.Contains(t.unasked, only) {
			return fmt.Errorf("--node %q: the node was not asked: leave out --local, or name it with --http", only)
		}
		if at < 0 {
			return fmt.Errorf("--node %q: there is no such node; see cachectl kube status", only)
		}
	}
	all := resourcesOf(t.nodes, only)
	if c.Structured() {
		out := struct {
			Resources []resourceJSON    `json:"resources"`
			Failed    []cli.FailureJSON `json:"failed,omitempty"`
		}{Resources: all}
		for _, n := range t.silent() {
			out.Failed = append(out.Failed, cli.FailureJSON{Node: cmp.Or(n.name, n.address), Error: n.silence.why})
		}
		if err := c.Document(out); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		return c.finish(t, nil)
	}
	table := &cli.Table{}
	table.Row("RESOURCE", "ENCODING", "FOLLOWED BY", "COPIES", "OBJECTS", "BYTES", "WATCHES", "PROGRESS", "LAG", "FLOOR", "STATE", "LOSSES")
	var notes []string
	for _, r := range all {
		table.Row(r.row()...)
		for _, n := range r.Nodes {
			if n.Error != "" {
				notes = append(notes, fmt.Sprintf("%s in %s at %s: %s", r.Name, r.Encoding, n.Node, n.Error))
			}
		}
	}
	if more := len(notes) - maxNotes; more > 0 {
		notes = append(notes[:maxNotes], fmt.Sprintf("and %d more: -o json has all", more))
	}
	if err := table.Write(c.Process.Stdout); err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	return c.finish(t, notes)
}
