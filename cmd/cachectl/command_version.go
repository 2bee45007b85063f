package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
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

func newVersionCommand(s *session) *cobra.Command {
	var own bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of cachectl and of the nodes",
		Long: `version prints the versions of cachectl and of the live nodes. If no node answers, it
prints a warning on standard error and succeeds.`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := versionJSON{Version: version.String()}
			if !own {
				var err error
				if out.Nodes, err = s.nodeVersions(cmd); exitCode(err) == exitUsage {
					return err
				} else if err != nil {
					s.advise("the nodes' versions are not known: " + err.Error())
				}
			}
			if s.Structured() {
				return s.Document(out)
			}
			return lines(s.p.stdout, out.lines()...)
		},
	}
	cmd.Flags().BoolVar(&own, "client", false, "print only the version of cachectl, without asking a node")
	return cmd
}

func (s *session) nodeVersions(cmd *cobra.Command) (nodes []nodeVersionJSON, err error) {
	if err := s.resolve(cmd); err != nil {
		return nil, &usageError{cmd.CommandPath(), err}
	}
	s.timeout = min(s.timeout, versionWithin)
	err = s.within(cmd, func(ctx context.Context, c *client.Client) error {
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

// lines are the versions for people: one line for the nodes of a version.
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
		out = append(out, fmt.Sprintf("nodes    %s: %s", orDash(of), strings.Join(names[of], ", ")))
	}
	return out
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
