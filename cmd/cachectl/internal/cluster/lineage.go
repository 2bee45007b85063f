package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

func newLineageCommand(s *cli.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lineage",
		Short: "Show the lineage that is served, or begin a new one",
		Long: `A lineage is one history of etcd: revisions can be compared only within it. When etcd
is restored from a backup, or replaced, the nodes detect it within seconds and begin
the next lineage automatically: they reload all data, watches of etcd's API end as
compacted, and native watches get the whole state.

lineage shows the current lineage, its origin, and each node's view of etcd.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.ClusterStatus(cmd, func(cs admin.ClusterStatus) error { return printLineage(s, cs) })
		},
	}
	cmd.AddCommand(newLineageBumpCommand(s))
	return cmd
}

type lineageJSON struct {
	Lineage        uint64            `json:"lineage"`
	Cause          string            `json:"cause,omitempty"`
	Reason         string            `json:"reason,omitempty"`
	Node           string            `json:"node,omitempty"`
	At             *time.Time        `json:"at,omitempty"`
	RevisionBefore int64             `json:"revision_before,omitempty"`
	Revision       int64             `json:"revision,omitempty"`
	Nodes          []lineageNodeJSON `json:"nodes"`
}

type lineageNodeJSON struct {
	Name          string `json:"name"`
	Lineage       uint64 `json:"lineage"`
	EtcdClusterID string `json:"etcd_cluster_id,omitempty"`
	EtcdRevision  int64  `json:"etcd_revision"`
	Refusal       string `json:"refusal,omitempty"`
	Error         string `json:"error,omitempty"`
}

func printLineage(s *cli.Session, cs admin.ClusterStatus) error {
	out := lineageJSON{Lineage: cs.Map.Lineage, Nodes: []lineageNodeJSON{}}
	if o := cs.Map.Origin; o != nil {
		out.Cause, out.Reason, out.Node, out.RevisionBefore, out.Revision = o.Cause, o.Reason, o.Node, o.RevisionBefore, o.Revision
		if o.At.Unix() != 0 {
			out.At = &o.At
		}
	}
	t := &cli.Table{}
	t.Row("NODE", "LINEAGE", "ETCD CLUSTER", "ETCD REVISION", "SERVES")
	var notes []string
	for _, m := range cs.Members {
		n := lineageNodeJSON{Name: m.Member.Name, Error: m.Error}
		serves := "no answer"
		if st := m.Status; st != nil {
			n.Lineage, n.EtcdClusterID, n.EtcdRevision, n.Refusal = st.Lineage, st.EtcdClusterID, st.EtcdRevision, st.Refusal
			if serves = "yes"; n.Refusal != "" {
				serves = "no"
				notes = append(notes, fmt.Sprintf("%s refuses: %s", n.Name, n.Refusal))
			}
		}
		t.Row(n.Name, fmt.Sprint(n.Lineage), cli.OrDash(n.EtcdClusterID), cli.Number(n.EtcdRevision), serves)
		out.Nodes = append(out.Nodes, n)
	}
	if s.Structured() {
		return s.Document(out)
	}
	about := "the first: etcd was never restored or replaced since the cluster was founded"
	if out.Cause != "" {
		about = fmt.Sprintf("%s (%s, detected by %s; the previous lineage had reached revision %d)", out.Reason, out.Cause, cli.OrDash(out.Node), out.RevisionBefore)
		if out.At != nil {
			about = out.At.UTC().Format(time.RFC3339) + ": " + about
		}
	}
	if _, err := fmt.Fprintf(s.Process.Stdout, "lineage %d, %s\n", out.Lineage, about); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := t.Write(s.Process.Stdout); err != nil {
		return err
	}
	for _, n := range notes {
		if _, err := fmt.Fprintln(s.Process.Stdout, n); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

func newLineageBumpCommand(s *cli.Session) *cobra.Command {
	var reason, accept string
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "bump --reason TEXT",
		Short: "Begin a new lineage: etcd's history has been replaced",
		Long: `bump ends the current lineage and begins the next one on all nodes: they drop their
caches and reload all data from etcd, every watch of etcd's API ends as compacted (its
clients list again), and every native watch gets the whole state. It costs etcd one
list per shard, and each client one copy of its watched keys.

The nodes do this automatically after a restore of etcd. Use bump when
  - keys were changed without a new revision of etcd (etcdctl and cachectl list print
    different values);
  - etcd was moved to a cluster with another ID: give that ID with
    --accept-cluster-id, then restart the nodes with the new --etcd;
  - a node refuses requests because it alone sees another cluster ID, and it is right
    (cachectl lineage shows each node's view).
It is never needed after a compaction, a change of etcd's members or leader, or
a restart of any process.`,
		Example: `  cachectl lineage bump --reason "restored shard of 3 May by hand"
  cachectl lineage bump --reason "moved to new machines" --accept-cluster-id 8e9e05c52164694d
  cachectl lineage bump --reason test --dry-run`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.TrimSpace(reason) == "" {
				return cli.Usage(cmd, errors.New("--reason is missing: cachectl lineage shows it later"))
			}
			return s.With(cmd, func(ctx context.Context, c *client.Client) error {
				return bump(ctx, s, c, reason, accept, yes, dryRun)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; required")
	cmd.Flags().StringVar(&accept, "accept-cluster-id", "", "the ID, in hex, of the etcd cluster to serve from now on, if it changes")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the effect, and change nothing")
	return cmd
}

// bumpJSON is the effect of a bump.
type bumpJSON struct {
	Ends    uint64 `json:"ends"`
	Lineage uint64 `json:"lineage"`
	Nodes   int    `json:"nodes"`
	Shards  int    `json:"shards"`
	Watches int64  `json:"watches"`
}

func bump(ctx context.Context, s *cli.Session, c *client.Client, reason, accept string, yes, dryRun bool) error {
	within, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	status, err := admin.New(c).ClusterStatus(within, s.Timeout/2)
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	plan := bumpJSON{Ends: status.Map.Lineage, Lineage: status.Map.Lineage + 1, Shards: len(status.Map.Shards)}
	for _, m := range status.Members {
		if m.Status != nil {
			plan.Nodes++
			plan.Watches += m.Status.Watches
		}
	}
	will := fmt.Sprintf("lineage %d ends, lineage %d begins: %d nodes reload %d shards, %d watches end or get the whole state\n",
		plan.Ends, plan.Lineage, plan.Nodes, plan.Shards, plan.Watches)
	switch {
	case dryRun && s.Structured():
		return s.Document(plan)
	case dryRun:
		_, err := fmt.Fprint(s.Process.Stdout, will)
		return err //nolint:wrapcheck // standard output is gone
	case !yes:
		if err := s.Confirm(ctx, will); err != nil {
			return err
		}
	}
	within, cancel = context.WithTimeout(ctx, s.Timeout) // the confirmation does not count
	defer cancel()
	begun, err := admin.New(c).BumpLineage(within, plan.Ends, reason, accept)
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	if s.Structured() {
		return s.Document(struct {
			Lineage uint64 `json:"lineage"`
		}{begun})
	}
	_, err = fmt.Fprintf(s.Process.Stdout, "lineage %d has begun\n", begun)
	return err //nolint:wrapcheck // standard output is gone
}
