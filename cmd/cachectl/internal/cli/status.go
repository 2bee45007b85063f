package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
)

// StateOf returns the state of a node for people.
func StateOf(m admin.Member) string {
	if m.Draining && m.State != admin.MemberLeft { // a node that has left drained before
		return m.State.String() + ", draining"
	}
	return m.State.String()
}

// ClusterStatus waits for members for half of the timeout, so that the command
// still succeeds if a member is unreachable.
func (s *Session) ClusterStatus(cmd *cobra.Command, print func(admin.ClusterStatus) error) error {
	return s.Within(cmd, func(ctx context.Context, c *client.Client) error {
		status, err := admin.New(c).ClusterStatus(ctx, s.Timeout/2)
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		return print(status)
	})
}

// LoadedShare returns a share in per cent, at most 99 because the replica is still loading.
func LoadedShare(bytes, of int64) int64 { return min(99, 100*bytes/of) }

// OverruledNotes returns notes about nodes whose flags have no effect.
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

// ErrNotConfirmed reports that the operator did not confirm.
var ErrNotConfirmed = errors.New("nothing was changed: answer yes, or pass --yes")

// Confirm asks the operator for confirmation.
func (s *Session) Confirm(ctx context.Context, will string) error {
	if _, err := fmt.Fprint(s.Process.Stderr, will+"Continue? [yes/no] "); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	answer, _ := bufio.NewReader(Input(ctx, s.Process.Stdin)).ReadString('\n') // an empty answer means no
	if strings.TrimSpace(answer) != "yes" || ctx.Err() != nil {
		return ErrNotConfirmed
	}
	return nil
}

// Input returns a reader of a terminal, pipe or file whose reads fail with the cause of ctx once ctx
// ends. It reads ahead.
func Input(ctx context.Context, from io.Reader) io.Reader {
	read, write := io.Pipe()
	go func() { // a read of a terminal cannot be interrupted
		_, err := io.Copy(write, from)
		_ = write.CloseWithError(err) // nil: from has ended
	}()
	context.AfterFunc(ctx, func() { _ = write.CloseWithError(context.Cause(ctx)) })
	return read
}
