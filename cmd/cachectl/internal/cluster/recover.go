package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

func newVotersRecoverCommand(s *cli.Session) *cobra.Command {
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Make one node the only voter, after a majority of the voters was lost permanently",
		Long: `recover restores a leader after a majority of the voters was lost permanently, together
with their data directories. One reachable node becomes the only voter, with the newest
shard map among the reachable nodes, and adds other nodes with --bootstrap-expect as
voters. Watches, positions and the lineage stay valid: clients do not notice.

Changes of the shard map that only the lost voters had are lost. The nodes load the
shards that the recovered map assigns to them.

It is refused while a majority of the voters is reachable, or a node has a leader. Bring
lost voters back with their data directories instead if you can. A lost voter that
comes back later sets its raft log aside, in its data directory, and follows the new
voters.

The recovered map needs feature level 5: nodes with older software do not understand it.

Without --yes it shows the plan and asks for confirmation. The exit code is 1 when nothing was changed.`,
		Example: `  cachectl voters recover --dry-run
  cachectl voters recover --yes`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.With(cmd, func(ctx context.Context, c *client.Client) error {
				return recoverVoters(ctx, s, c, yes, dryRun)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the plan, and change nothing")
	return cmd
}

type recoveryJSON struct {
	Node             string   `json:"node"`
	MapVersion       uint64   `json:"map_version"`
	AnnouncedVersion uint64   `json:"announced_version"`
	Voters           []string `json:"voters"`
	Reachable        []string `json:"reachable"`
	NewVersion       uint64   `json:"new_version,omitempty"`
}

func recoverVoters(ctx context.Context, s *cli.Session, c *client.Client, yes, dryRun bool) error {
	plan, err := admin.New(c).PlanVoterRecovery(ctx)
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	switch {
	case dryRun && s.Structured():
		return s.Document(recoveryFrom(plan))
	case dryRun:
		_, err := fmt.Fprint(s.Process.Stdout, describe(plan))
		return err //nolint:wrapcheck // standard output is gone
	case !yes:
		if err := s.Confirm(ctx, describe(plan)); err != nil {
			return err //nolint:wrapcheck // says what to do
		}
	}
	done, err := admin.New(c).RecoverVoters(ctx, plan)
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	if s.Structured() {
		return s.Document(recoveryFrom(done))
	}
	_, err = fmt.Fprintf(s.Process.Stdout, "%s leads the voters, with map version %d; it adds other voters automatically: see cachectl voters\n", done.Node, done.NewVersion)
	return err //nolint:wrapcheck // standard output is gone
}

func recoveryFrom(r admin.VoterRecovery) recoveryJSON {
	return recoveryJSON{
		Node: r.Node, MapVersion: r.MapVersion, AnnouncedVersion: r.AnnouncedVersion, NewVersion: r.NewVersion,
		Voters: slices.Concat([]string{}, r.Voters), Reachable: slices.Concat([]string{}, r.Reachable),
	}
}

// describe returns a plan as text.
func describe(r admin.VoterRecovery) string {
	voters := "no voter is known"
	if len(r.Voters) > 0 {
		var gone []string
		for _, v := range r.Voters {
			if !slices.Contains(r.Reachable, v) {
				gone = append(gone, v)
			}
		}
		voters = fmt.Sprintf("%d of %d voters are reachable, %d are needed; lost: %s", len(r.Reachable), len(r.Voters), len(r.Voters)/2+1, strings.Join(gone, ", "))
	}
	lost := "changes of it that only lost voters had are lost; no such change is known"
	if r.AnnouncedVersion > r.MapVersion {
		lost = fmt.Sprintf("later changes of it, up to version %d, are lost", r.AnnouncedVersion)
	}
	return fmt.Sprintf("%s\n%s becomes the only voter, with map version %d, the newest on a reachable node; %s\nlost voters that come back set their raft logs aside and follow\n", voters, r.Node, r.MapVersion, lost)
}
