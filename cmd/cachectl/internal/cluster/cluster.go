package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

func newMembersCommand(s *cli.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "members",
		Short: "Show the nodes, as gossip sees them, and the voters",
		Args:  cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.ClusterStatus(cmd, func(cs admin.ClusterStatus) error {
				members := make([]admin.Member, 0, len(cs.Members))
				for _, m := range cs.Members {
					members = append(members, m.Member)
				}
				if s.Structured() {
					out := make([]cli.MemberJSON, 0, len(members))
					for _, m := range members {
						out = append(out, cli.MemberOf(m))
					}
					return s.Document(struct {
						Members []cli.MemberJSON `json:"members"`
					}{out})
				}
				t := &cli.Table{}
				t.Row("NAME", "STATE", "CLIENT", "PEER", "HTTP", "VOTER", "LEADER", "ZONE", "WEIGHT", "VERSION")
				for _, m := range members {
					t.Row(m.Name, cli.StateOf(m), cli.OrDash(m.ClientAddress), cli.OrDash(m.PeerAddress), cli.OrDash(m.HTTPAddress),
						cli.Yes(m.Voter), cli.Yes(m.Leader), cli.OrDash(m.Zone), cli.Number(int64(max(m.Weight, 1))), cli.OrDash(m.Version))
				}
				return t.Write(s.Process.Stdout)
			})
		},
	}
}

func newStatusCommand(s *cli.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the state of every node",
		Long: `status queries every node and prints its readiness, with the missing conditions; the
last revision of etcd that it read, and when; its replicas, watches and connections.
The exit code is 4 when the voters have no leader: no shard can be moved then. See
cachectl voters.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.ClusterStatus(cmd, func(cs admin.ClusterStatus) error { return printStatus(s, cs) })
		},
	}
}

type nodeJSON struct {
	Member         cli.MemberJSON `json:"member"`
	Error          string         `json:"error,omitempty"`
	Ready          bool           `json:"ready"`
	NotReady       []string       `json:"not_ready,omitempty"`
	OverruledFlags []string       `json:"overruled_flags,omitempty"`
	MapVersion     uint64         `json:"map_version"`
	EtcdClusterID  string         `json:"etcd_cluster_id,omitempty"`
	EtcdRevision   int64          `json:"etcd_revision"`
	EtcdAgeSeconds float64        `json:"etcd_age_seconds"`
	Replicas       int            `json:"replicas"`
	Watches        int64          `json:"watches"`
	Connections    int64          `json:"connections"`
	UptimeSeconds  float64        `json:"uptime_seconds"`
}

func nodeOf(m admin.MemberStatus) nodeJSON {
	n := nodeJSON{Member: cli.MemberOf(m.Member), Error: m.Error}
	if st := m.Status; st != nil {
		n.Ready, n.NotReady = len(st.NotReady) == 0, st.NotReady
		n.OverruledFlags = st.OverruledFlags
		n.MapVersion, n.EtcdClusterID, n.EtcdRevision, n.EtcdAgeSeconds = st.MapVersion, st.EtcdClusterID, st.EtcdRevision, st.EtcdAge.Seconds()
		n.Replicas, n.Watches, n.Connections, n.UptimeSeconds = len(st.Replicas), st.Watches, st.Connections, st.Uptime.Seconds()
	}
	return n
}

func printStatus(s *cli.Session, cs admin.ClusterStatus) error {
	nodes := []nodeJSON{}
	t := &cli.Table{}
	t.Row("NODE", "STATE", "READY", "MAP", "ETCD REVISION", "SEEN AGO", "REPLICAS", "WATCHES", "CONNECTIONS", "UPTIME")
	var notes []string
	for _, m := range cs.Members {
		n := nodeOf(m)
		if st := m.Status; st != nil {
			ready := "yes"
			if !n.Ready {
				ready = "no"
				notes = append(notes, fmt.Sprintf("%s is not ready: %s", m.Member.Name, strings.Join(st.NotReady, "; ")))
			}
			t.Row(m.Member.Name, cli.StateOf(m.Member), ready, fmt.Sprint(st.MapVersion), cli.Number(st.EtcdRevision), cli.TimeOf(st.EtcdAge),
				fmt.Sprint(n.Replicas), cli.Number(n.Watches), cli.Number(n.Connections), cli.TimeOf(st.Uptime))
		} else {
			t.Row(m.Member.Name, cli.StateOf(m.Member), "no answer", "-", "-", "-", "-", "-", "-", "-")
			notes = append(notes, fmt.Sprintf("%s does not answer: %s", m.Member.Name, m.Error))
		}
		nodes = append(nodes, n)
	}
	if s.Structured() {
		if err := s.Document(struct {
			ClusterID    string     `json:"cluster_id"`
			Lineage      uint64     `json:"lineage"`
			MapVersion   uint64     `json:"map_version"`
			FeatureLevel int        `json:"feature_level,omitempty"`
			RaftLeader   string     `json:"raft_leader,omitempty"`
			Nodes        []nodeJSON `json:"nodes"`
		}{cs.Map.ClusterID, cs.Map.Lineage, cs.Map.Version, cs.Map.FeatureLevel, cs.Quorum().Leader, nodes}); err != nil {
			return err
		}
		return noLeader(cs)
	}
	if err := t.Write(s.Process.Stdout); err != nil {
		return err
	}
	notes = append(notes, LevelsOf(cs).note())
	if err := cli.Lines(s.Process.Stdout, slices.Concat(notes, cli.OverruledNotes(cs), placementNotes(cs))...); err != nil {
		return err
	}
	return noLeader(cs)
}

func newShardsCommand(s *cli.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "shards",
		Short: "Show the shards, their nodes and their progress",
		Long: `shards prints a line for every shard; -o json has the figures of each replica.

  FROM, TO    its range of keys
  OWNER       the node that watches etcd
  REPLICAS    the other nodes that have a copy
  EPOCH       grows whenever the list of its nodes changes
  PROGRESS    the revision up to which the owner is complete
  LAG         revisions by which the slowest replica lags etcd
  WINDOW      revisions in the owner's window: a watch may start there
  SPAN        the age of the oldest event in it; 0 when there is none
  DELTAS      revisions below the newest from which a watch gets a delta
  KEYS        keys in the owner's copy
  WATCHERS    watchers on all replicas, including nodes that follow one

The owner's memory is divided into:

  STATE       keys and values, with the indexes over them
  EVENTS      the window: events with their previous values
  ROOTS       additional memory of older states, kept for reads at a past revision
  DELETES     the deletes that are kept for DELTAS

A value in several of them is counted in each, but is in memory only once. If the owner
is not ready, the figures are those of the first replica that is. A loading replica has
its approximate progress: "(not ready, 42 %)".

Below the table: drained nodes, and shards that are pinned by a move, have too few
replicas, or are about to be merged.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.ClusterStatus(cmd, func(cs admin.ClusterStatus) error { return printShards(s, cs) })
		},
	}
}

// shardsOf joins the map with each node's report of its replicas.
func shardsOf(cs admin.ClusterStatus) []cli.ShardJSON {
	var head int64 // the newest revision of etcd that any node has read
	byShard := map[uint64]map[string]admin.ReplicaStatus{}
	for _, m := range cs.Members {
		if m.Status == nil {
			continue
		}
		head = max(head, m.Status.EtcdRevision)
		for _, r := range m.Status.Replicas {
			head = max(head, r.Progress)
			if byShard[r.Shard] == nil {
				byShard[r.Shard] = map[string]admin.ReplicaStatus{}
			}
			byShard[r.Shard][m.Member.Name] = r
		}
	}
	out := make([]cli.ShardJSON, 0, len(cs.Map.Shards))
	for _, sh := range cs.Map.Shards {
		j := cli.ShardJSON{
			ID: sh.ID, Epoch: sh.Epoch, Owner: sh.Owner(), Replicas: []cli.ReplicaJSON{},
			Pins: sh.Pins, WantedReplicas: cmp.Or(sh.WantedReplicas, cs.Map.Replicas), Joins: sh.Joins,
		}
		if j.Start = sh.Range.Start; j.Start != "" {
			j.Start = document.Text([]byte(j.Start))
		}
		if j.End = sh.Range.End; j.End != "" {
			j.End = document.Text([]byte(j.End))
		}
		for _, name := range sh.Replicas {
			r, ok := byShard[sh.ID][name]
			if !ok {
				j.Replicas = append(j.Replicas, cli.ReplicaJSON{Node: name, Source: admin.SourceNone.String()})
				continue
			}
			j.Replicas = append(j.Replicas, cli.ReplicaJSON{
				Node: name, Ready: r.Ready, Source: r.Source.String(), SourceNode: r.SourceNode,
				Progress: r.Progress, Lag: max(head-r.Progress, 0), AgeSeconds: r.Age.Seconds(), Keys: r.Keys, StateBytes: r.StateBytes,
				Roots: r.Roots, RootsBytes: r.RootsBytes,
				Floor: r.Floor, WindowRevisions: max(r.Progress-r.Floor+1, 0), WindowBatches: r.WindowBatches,
				WindowBytes: r.WindowBytes, WindowSpanSeconds: r.WindowSpan.Seconds(), Watchers: r.Watchers, Relay: r.Relay,
				DeltaFloor: r.DeltaFloor, DeltaRevisions: deltaRevisions(r), Tombstones: r.Tombstones, TombstoneBytes: r.TombstoneBytes,
			})
		}
		out = append(out, j)
	}
	return out
}

// held returns the size of the replica's data that other replicas copy, in bytes.
func held(r cli.ReplicaJSON) int64 { return r.StateBytes + r.WindowBytes + r.TombstoneBytes }

// loaded returns, after a comma, the share of the others' data that a loading replica
// has; "" if it is unknown.
func loaded(s cli.ShardJSON, r cli.ReplicaJSON) string {
	most := int64(0)
	for _, other := range s.Replicas {
		if other.Ready {
			most = max(most, held(other))
		}
	}
	if held(r) == 0 || most == 0 {
		return ""
	}
	return fmt.Sprintf(", %d %%", cli.LoadedShare(held(r), most))
}

// deltaRevisions returns the number of revisions for which the replica can send a
// delta.
func deltaRevisions(r admin.ReplicaStatus) int64 {
	if r.DeltaFloor == 0 {
		return 0
	}
	return max(r.Progress-r.DeltaFloor+1, 0)
}

func printShards(s *cli.Session, cs admin.ClusterStatus) error {
	shards := shardsOf(cs)
	if s.Structured() {
		return s.Document(struct {
			MapVersion uint64          `json:"map_version"`
			Lineage    uint64          `json:"lineage"`
			Drained    []string        `json:"drained,omitempty"`
			Shards     []cli.ShardJSON `json:"shards"`
		}{cs.Map.Version, cs.Map.Lineage, cs.Map.Drained, shards})
	}
	t := &cli.Table{}
	t.Row("SHARD", "FROM", "TO", "OWNER", "REPLICAS", "EPOCH", "PROGRESS", "LAG", "WINDOW", "SPAN", "DELTAS", "KEYS", "STATE", "EVENTS", "ROOTS", "DELETES", "WATCHERS")
	for _, sh := range shards {
		var others []string
		var lag, watchers int64
		progress, window, span, deltas, keys := "-", "-", "-", "-", "-"
		state, events, roots, deletes := "-", "-", "-", "-"
		owner, told := sh.Owner, false
		for i, r := range sh.Replicas {
			watchers += r.Watchers
			if r.Ready {
				lag = max(lag, r.Lag)
			}
			name := r.Node
			if !r.Ready {
				name += " (not ready" + loaded(sh, r) + ")"
			}
			if i == 0 {
				owner = name
			} else {
				others = append(others, name)
			}
			if r.Ready && !told {
				told = true
				progress, window, span = cli.Number(r.Progress), cli.Number(r.WindowRevisions), cli.TimeOf(cli.Seconds(r.WindowSpanSeconds))
				deltas, keys = cli.Number(r.DeltaRevisions), cli.Number(r.Keys)
				state, events, roots, deletes = cli.BytesOf(r.StateBytes), cli.BytesOf(r.WindowBytes), cli.BytesOf(r.RootsBytes), cli.BytesOf(r.TombstoneBytes)
			}
		}
		t.Row(fmt.Sprint(sh.ID), cli.OrDash(sh.Start), cli.OrDash(sh.End), cli.OrDash(owner), cli.OrDash(strings.Join(others, ", ")), fmt.Sprint(sh.Epoch),
			progress, cli.Number(lag), window, span, deltas, keys, state, events, roots, deletes, cli.Number(watchers))
	}
	if err := t.Write(s.Process.Stdout); err != nil {
		return err
	}
	return cli.Lines(s.Process.Stdout, placementNotes(cs)...)
}

// placementNotes lists the operator's settings of nodes and shards, and pending
// changes.
func placementNotes(cs admin.ClusterStatus) (notes []string) {
	few := 0
	for _, n := range cs.Map.Drained {
		has := 0
		for _, sh := range cs.Map.Shards {
			if slices.Contains(sh.Replicas, n) {
				has++
			}
		}
		left := "has no shards left"
		if has > 0 {
			left = fmt.Sprintf("has %d shards left", has)
		}
		notes = append(notes, fmt.Sprintf("%s is drained and %s (cachectl undrain %s ends that)", n, left, n))
	}
	for _, sh := range cs.Map.Shards {
		if len(sh.Pins) > 0 {
			notes = append(notes, fmt.Sprintf("shard %d is pinned to %s (cachectl rebalance unpins it)", sh.ID, strings.Join(sh.Pins, ", ")))
		}
		if sh.Joins {
			notes = append(notes, fmt.Sprintf("shard %d is about to be merged with a neighbour", sh.ID))
		}
		if len(sh.Replicas) < cmp.Or(sh.WantedReplicas, cs.Map.Replicas) {
			few++
		}
	}
	if more := len(notes) - maxNotes; more > 0 {
		notes = append(notes[:maxNotes], fmt.Sprintf("and %d more: cachectl shards -o json", more))
	}
	if few > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d shards have fewer replicas than they should", few, len(cs.Map.Shards)))
	}
	return notes
}

// maxNotes bounds the printed notes.
const maxNotes = 20
