package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

func newVotersCommand(s *cli.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "voters",
		Short: "Show the voters of the shard map, and how many may be lost",
		Long: `voters shows the nodes that vote on the shard map, their leader, and the nodes that are
eligible to vote.

A change of the shard map needs a leader and a majority of the voters. Without them
the nodes serve every shard as it is, but no shard is split or moved: not on request, not
because of load, and not off a dead node. The exit code is then 4.

  VOTE     voter, or no: the node may replace a voter that leaves
  ROLE     leader or follower
  LOG      the newest entry of the node's raft log; a voter that stays far behind the
           leader is replaced after --replace-voter-after`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.ClusterStatus(cmd, func(cs admin.ClusterStatus) error { return printVoters(s, cs) })
		},
	}
	cmd.AddCommand(newVotersRecoverCommand(s))
	return cmd
}

type votersJSON struct {
	Voters []voterJSON `json:"voters"`
	Leader string      `json:"leader,omitempty"`
	Alive  int         `json:"alive"`
	Needed int         `json:"needed"`
	Spare  int         `json:"spare"`
	// Generation is the map's version at the last recovery of the voters; 0: none.
	Generation uint64 `json:"generation,omitempty"`
}

type voterJSON struct {
	Name      string `json:"name"`
	State     string `json:"state"`
	Voter     bool   `json:"voter"`
	Leader    bool   `json:"leader"`
	Zone      string `json:"zone,omitempty"`
	RaftIndex uint64 `json:"raft_index"`
}

func printVoters(s *cli.Session, cs admin.ClusterStatus) error {
	q := cs.Quorum()
	out := votersJSON{Voters: []voterJSON{}, Leader: q.Leader, Alive: len(q.Alive), Needed: q.Needed(), Spare: q.Spare(), Generation: cs.Map.Generation}
	t := &cli.Table{}
	t.Row("NAME", "STATE", "VOTE", "ROLE", "ZONE", "LOG")
	add := func(j voterJSON) {
		out.Voters = append(out.Voters, j)
		vote, role, log := "no", "-", "-"
		if j.Voter {
			vote, role = "voter", "follower"
		}
		if j.Leader {
			role = "leader"
		}
		if j.RaftIndex > 0 {
			log = fmt.Sprint(j.RaftIndex)
		}
		t.Row(j.Name, j.State, vote, role, cli.OrDash(j.Zone), log)
	}
	seen := map[string]bool{}
	for _, m := range cs.Members {
		seen[m.Member.Name] = true
		j := voterJSON{
			Name: m.Member.Name, State: cli.StateOf(m.Member), Zone: m.Member.Zone,
			Voter: slices.Contains(q.Voters, m.Member.Name), Leader: m.Member.Name == q.Leader,
		}
		if m.Status != nil {
			j.RaftIndex = m.Status.RaftIndex
		}
		add(j)
	}
	for _, v := range q.Voters {
		if !seen[v] {
			add(voterJSON{Name: v, State: "not seen", Voter: true})
		}
	}
	if s.Structured() {
		if err := s.Document(out); err != nil {
			return err
		}
		return noLeader(cs)
	}
	if err := t.Write(s.Process.Stdout); err != nil {
		return err
	}
	if why := noLeader(cs); why != nil {
		return why
	}
	notes := []string{spareNote(q)}
	if g := cs.Map.Generation; g != 0 {
		notes = append(notes, fmt.Sprintf("the voters were recovered, with map version %d: older raft logs are ignored", g))
	}
	return cli.Lines(s.Process.Stdout, notes...)
}

// spareNote reports how many voters may be lost.
func spareNote(q admin.Quorum) string {
	more := "after another loss, no shard can be moved"
	if q.Spare() == 1 {
		more = "1 more may be lost"
	} else if q.Spare() > 1 {
		more = fmt.Sprintf("%d more may be lost", q.Spare())
	}
	return fmt.Sprintf("%d of %d voters are alive, %d are needed: %s", len(q.Alive), len(q.Voters), q.Needed(), more)
}

// NoLeaderError reports that the shard map cannot change.
type NoLeaderError struct {
	quorum admin.Quorum
	stuck  []string // notes about shards assigned to dead or left nodes
}

func (e *NoLeaderError) Error() string {
	text := "the voters have no leader: every shard is served as it is, and none can be moved"
	switch q := e.quorum; {
	case len(q.Voters) == 0:
		text += "; no voter answers: start the nodes with --bootstrap-expect, with their data directories, or if these are lost: cachectl voters recover --help"
	case q.Spare() < 0:
		var gone []string
		for _, v := range q.Voters {
			if !slices.Contains(q.Alive, v) {
				gone = append(gone, v)
			}
		}
		text += fmt.Sprintf("; %d of %d voters are alive and %d are needed: start %s, with their data directories, or if these are lost: cachectl voters recover --help",
			len(q.Alive), len(q.Voters), q.Needed(), strings.Join(gone, ", "))
	default:
		text += fmt.Sprintf("; %d of %d voters are alive, which is enough: they elect a leader within seconds, or cannot reach each other's raft port", len(q.Alive), len(q.Voters))
	}
	if len(e.stuck) > 0 {
		text += "\n" + strings.Join(e.stuck, "\n")
	}
	return text
}

// noLeader returns an error when the cluster was founded and no voter leads.
func noLeader(cs admin.ClusterStatus) error {
	q := cs.Quorum()
	if q.Leader != "" || cs.Map.Version == 0 {
		return nil
	}
	e := &NoLeaderError{quorum: q}
	for _, m := range cs.Members {
		if m.Member.State != admin.MemberDead && m.Member.State != admin.MemberLeft {
			continue
		}
		owned, has := 0, 0
		for _, sh := range cs.Map.Shards {
			if sh.Owner() == m.Member.Name {
				owned++
			}
			if slices.Contains(sh.Replicas, m.Member.Name) {
				has++
			}
		}
		if has > 0 {
			e.stuck = append(e.stuck, fmt.Sprintf("%s is %s and still has %d shards in the map, %d as their owner: their other replicas serve them, with one copy less", m.Member.Name, m.Member.State, has, owned))
		}
	}
	return e
}
