package cluster

import (
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
	"github.com/shardwatch/shardwatch/internal/version"
)

// versionWithin is how long version waits for the nodes' versions.
const versionWithin = 2 * time.Second

type versionJSON struct {
	Version string            `json:"version"`
	Nodes   []nodeVersionJSON `json:"nodes,omitempty"`
}

type nodeVersionJSON struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	FeatureLevel int    `json:"feature_level,omitempty"`
}

func newVersionCommand(s *cli.Session) *cobra.Command {
	var own bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of cachectl and of the nodes",
		Long: `version prints the versions of cachectl and of the live nodes. If no node answers, it
prints a warning on standard error and succeeds.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := versionJSON{Version: version.String()}
			if !own {
				var err error
				var usage *cli.UsageError
				if out.Nodes, err = nodeVersions(s, cmd); errors.As(err, &usage) {
					return err
				} else if err != nil {
					s.Advise("the nodes' versions are not known: " + err.Error())
				}
			}
			if s.Structured() {
				return s.Document(out)
			}
			return cli.Lines(s.Process.Stdout, out.lines()...)
		},
	}
	cmd.Flags().BoolVar(&own, "client", false, "print only the version of cachectl, without asking a node")
	return cmd
}

func nodeVersions(s *cli.Session, cmd *cobra.Command) (nodes []nodeVersionJSON, err error) {
	if err := s.Resolve(cmd); err != nil {
		return nil, cli.Usage(cmd, err)
	}
	s.Timeout = min(s.Timeout, versionWithin)
	err = s.Within(cmd, func(ctx context.Context, c *client.Client) error {
		members, err := admin.New(c).Members(ctx)
		for _, m := range members {
			if m.State == admin.MemberAlive {
				nodes = append(nodes, nodeVersionJSON{m.Name, m.Version, m.FeatureLevel})
			}
		}
		return err //nolint:wrapcheck // says what it did
	})
	return nodes, err
}

// lines returns the versions for people: one line for the nodes of each version.
func (v versionJSON) lines() []string {
	out := []string{"cachectl " + v.Version}
	names := map[string][]string{}
	var versions []string
	for _, n := range v.Nodes {
		if names[n.Version] == nil {
			versions = append(versions, n.Version)
		}
		names[n.Version] = append(names[n.Version], n.Name)
	}
	slices.Sort(versions)
	for _, of := range versions {
		out = append(out, fmt.Sprintf("nodes    %s: %s", cli.OrDash(of), strings.Join(names[of], ", ")))
	}
	return out
}
