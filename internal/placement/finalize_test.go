package placement_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// After all nodes were upgraded they can still go back: no command of the new level is
// agreed on before an operator has finalized it, and founders that have it begin with
// it.
func TestAnUpgradeCanGoBackUntilItIsFinalized(t *testing.T) {
	c := newCluster(t, false)
	old := c.add("n2", 0)
	old.set(func(m *shard.Member) { m.Level = shard.LevelWatches })
	n := c.add("n1", 1)
	m := c.founded(n)
	if m.Finalized != 0 || m.Level() > shard.LevelWatches {
		t.Fatalf("founded with an older member: finalized %d, level %d", m.Finalized, m.Level())
	}
	tooOld := new(shard.OldMembersError)
	if err := change(n, shard.Finalize{Level: shard.LevelSettings}); !errors.As(err, &tooOld) {
		t.Errorf("finalize with an older member: %v", err)
	}
	old.set(func(m *shard.Member) { m.Level = shard.LevelSettings })
	newer := func() error {
		s := n.p.Map().Shards[0]
		b, err := shard.EncodeCommand(shard.Command{
			RequestID: uuid.NewString(), IfVersion: n.p.Map().Version, Change: shard.Assign{Moves: []shard.Move{{Shard: s.ID, Replicas: s.Replicas}}},
		})
		if err != nil {
			return err
		}
		b[0] = shard.LevelSettings
		_, err = n.p.ApplyEncoded(t.Context(), b)
		return err
	}
	notFinal := new(shard.NotFinalError)
	if err := newer(); !errors.As(err, &notFinal) || !strings.Contains(err.Error(), "cachectl upgrade finalize") {
		t.Errorf("a command of the new level before finalize: %v", err)
	}
	if err := change(n, shard.Finalize{Level: shard.LevelSettings}); err != nil {
		t.Fatal(err)
	}
	if err := newer(); err != nil {
		t.Errorf("a command of the new level after finalize: %v", err)
	}
	fresh := newCluster(t, false)
	if m := fresh.founded(fresh.add("n1", 1)); m.Finalized != shard.Level {
		t.Errorf("a new cluster begins with level %d", m.Finalized)
	}
}
