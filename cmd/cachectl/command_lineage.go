package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
)

func newLineageCommand(s *session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lineage",
		Short: "Show which history of etcd is served, and begin a new one",
		Long: `A lineage is one history of etcd: revisions are comparable within it, and mean
nothing outside. When etcd is restored from a backup, or replaced, the nodes find
out within seconds and begin the next lineage by themselves: they load everything
anew, watches of etcd's API end as compacted, and those of the native API are sent
the whole state.

lineage shows the present one, how it came about, and what each node sees of etcd.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.clusterStatus(cmd, s.printLineage)
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

func (s *session) printLineage(cs admin.ClusterStatus) error {
	out := lineageJSON{Lineage: cs.Map.Lineage, Nodes: []lineageNodeJSON{}}
	if o := cs.Map.Origin; o != nil {
		out.Cause, out.Reason, out.Node, out.RevisionBefore, out.Revision = o.Cause, o.Reason, o.Node, o.RevisionBefore, o.Revision
		if o.At.Unix() != 0 {
			out.At = &o.At
		}
	}
	t := &table{}
	t.row("NODE", "LINEAGE", "ETCD CLUSTER", "ETCD REVISION", "SERVES")
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
		t.row(n.Name, fmt.Sprint(n.Lineage), orDash(n.EtcdClusterID), number(n.EtcdRevision), serves)
		out.Nodes = append(out.Nodes, n)
	}
	if s.structured() {
		return s.document(out)
	}
	about := "the first: etcd was never restored or replaced since the cluster was founded"
	if out.Cause != "" {
		about = fmt.Sprintf("%s (%s, found by %s; the one before had come to revision %d)", out.Reason, out.Cause, orDash(out.Node), out.RevisionBefore)
		if out.At != nil {
			about = out.At.UTC().Format(time.RFC3339) + ": " + about
		}
	}
	if _, err := fmt.Fprintf(s.p.stdout, "lineage %d, %s\n", out.Lineage, about); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := t.write(s.p.stdout); err != nil {
		return err
	}
	for _, n := range notes {
		if _, err := fmt.Fprintln(s.p.stdout, n); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

func newLineageBumpCommand(s *session) *cobra.Command {
	var reason, accept string
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "bump --reason TEXT",
		Short: "Say that etcd's history is another one from now on",
		Long: `bump ends the present lineage and begins the next, on all nodes: they drop what
they have and load everything from etcd, every watch of etcd's API ends as
compacted (its clients list again), and every native watch is sent the whole
state. It costs etcd one list of each shard, and clients the whole of what they
watch.

The nodes do that by themselves when etcd was restored. Use bump when
  - keys were changed behind etcd's back, so that its revisions do not tell
    (etcdctl says one thing, cachectl list another);
  - etcd was moved to a cluster with another ID: name it with
    --accept-cluster-id, then restart the nodes with the new --etcd;
  - a node refuses because it alone sees another cluster ID, and it is right
    (cachectl lineage shows what each sees).
It is never needed after a compaction, a change of etcd's members or leader, or
a restart of anything.`,
		Example: `  cachectl lineage bump --reason "restored shard of 3 May by hand"
  cachectl lineage bump --reason "moved to new machines" --accept-cluster-id 8e9e05c52164694d
  cachectl lineage bump --reason test --dry-run`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.TrimSpace(reason) == "" {
				return &usageError{cmd.CommandPath(), errors.New("--reason is missing: it is kept, and shown by cachectl lineage")}
			}
			return s.with(cmd, func(ctx context.Context, c *client.Client) error {
				return s.bump(ctx, c, reason, accept, yes, dryRun)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; required")
	cmd.Flags().StringVar(&accept, "accept-cluster-id", "", "the ID of the etcd cluster that is served from now on, in hex, when it is another one")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would happen, and do nothing")
	return cmd
}

func (s *session) bump(ctx context.Context, c *client.Client, reason, accept string, yes, dryRun bool) error {
	within, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	status, err := admin.New(c).ClusterStatus(within, s.timeout/2)
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	watches, nodes := int64(0), 0
	for _, m := range status.Members {
		if m.Status != nil {
			nodes++
			watches += m.Status.Watches
		}
	}
	ended := status.Map.Lineage
	will := fmt.Sprintf("lineage %d ends, lineage %d begins: %d nodes load %d shards anew, %d watches are ended or sent everything\n",
		ended, ended+1, nodes, len(status.Map.Shards), watches)
	switch {
	case dryRun:
		_, err := fmt.Fprint(s.p.stdout, will)
		return err //nolint:wrapcheck // standard output is gone
	case !yes:
		if err := s.confirm(ctx, will); err != nil {
			return err
		}
	}
	within, cancel = context.WithTimeout(ctx, s.timeout) // the question took its time
	defer cancel()
	begun, err := admin.New(c).BumpLineage(within, ended, reason, accept)
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	if s.structured() {
		return s.document(struct {
			Lineage uint64 `json:"lineage"`
		}{begun})
	}
	_, err = fmt.Fprintf(s.p.stdout, "lineage %d has begun\n", begun)
	return err //nolint:wrapcheck // standard output is gone
}
