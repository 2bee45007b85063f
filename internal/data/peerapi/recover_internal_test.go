package peerapi

import (
	"context"
	"errors"
	"testing"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// voting is a node that restarts the voting, in the version after the requested one.
type voting struct{}

func (voting) BeginVoting(_ context.Context, mapVersion uint64, dryRun bool) (uint64, error) {
	if dryRun {
		return 0, nil
	}
	return mapVersion + 100, nil
}

// A dry run returns the node's plan without executing it.
func TestRecoverVotersOfAnotherNode(t *testing.T) {
	s := New(Config{Voting: voting{}})
	for dryRun, want := range map[bool]uint64{true: 0, false: 107} {
		got, err := s.RecoverVoters(t.Context(), &peerv1.RecoverVotersRequest{MapVersion: 7, DryRun: dryRun})
		if err != nil || got.GetMapVersion() != want {
			t.Errorf("dry run %v: version %d, %v; want %d", dryRun, got.GetMapVersion(), err, want)
		}
	}
	var u *kv.UnavailableError
	if _, err := New(Config{}).RecoverVoters(t.Context(), &peerv1.RecoverVotersRequest{}); !errors.As(wire.Error(err), &u) {
		t.Errorf("a node that does not vote: %v, want UnavailableError", err)
	}
}
