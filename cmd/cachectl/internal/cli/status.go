package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
)

// StateOf is the state of a node for people.
func StateOf(m admin.Member) string {
	if m.Draining && m.State != admin.MemberLeft { // a node that has left drained before
		return m.State.String() + ", draining"
	}
	return m.State.String()
}

// ClusterStatus asks for half of the timeout, so that a member that is away
// does not cost the answer.
func (s *Session) ClusterStatus(cmd *cobra.Command, print func(admin.ClusterStatus) error) error {
	return s.Within(cmd, func(ctx context.Context, c *client.Client) error {
		status, err := admin.New(c).ClusterStatus(ctx, s.Timeout/2)
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		return print(status)
	})
}

// LoadedShare is a part in per cent, at most 99 because the replica is still loading.
func LoadedShare(bytes, of int64) int64 { return min(99, 100*bytes/of) }

// OverruledNotes names nodes with flags that are not in force.
func OverruledNotes(cs admin.ClusterStatus) []string {
	var notes []string
	for _, m := range cs.Members {
		if m.Status != nil && len(m.Status.OverruledFlags) > 0 {
			notes = append(notes, fmt.Sprintf("%s was started with %s, which has no effect (cachectl settings set changes the cluster's settings)",
				m.Member.Name, strings.Join(m.Status.OverruledFlags, " ")))
		}
	}
	return notes
}

// ErrNotConfirmed reports that the operator did not agree.
var ErrNotConfirmed = errors.New("nothing was changed: answer yes, or pass --yes")

// Confirm asks the operator for confirmation.
func (s *Session) Confirm(ctx context.Context, will string) error {
	if _, err := fmt.Fprint(s.Process.Stderr, will+"Continue? [yes/no] "); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	answers := make(chan string, 1)
	go func() { // nothing ends a read of a terminal
		answer, _ := bufio.NewReader(s.Process.Stdin).ReadString('\n') // nothing is no
		answers <- answer
	}()
	select {
	case answer := <-answers:
		if strings.TrimSpace(answer) == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return ErrNotConfirmed
}
