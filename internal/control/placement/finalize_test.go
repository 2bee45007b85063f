package placement_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"

	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// Upgraded nodes can be downgraded until an operator has finalized the new level: before,
// no command of the level is agreed on. A cluster whose founders all have the level begins
// with it.
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
		t.Errorf("a new cluster begins with finalized level %d", m.Finalized)
	}
}

// A node that is downgraded after its cluster's level was finalized does not start,
// reports why, and keeps its map file for the newer software.
func TestAMapFileOfANewerVersionIsKept(t *testing.T) {
	c := newCluster(t, false)
	n := c.add("n1", 1)
	c.founded(n)
	file := filepath.Join(n.dir, "shardmap")
	testkit.Eventually(t, "the map is on disk", func() bool { _, err := os.Stat(file); return err == nil })
	n.stop()
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const magic = "shardwatch map 1\n"
	body := bytes.Clone(whole[len(magic)+8:])
	body[0] = shard.Level + 1
	newer := append(binary.BigEndian.AppendUint64([]byte(magic), xxhash.Sum64(body)), body...)
	if err := os.WriteFile(file, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := placement.Defaults()
	cfg.Name, cfg.DataDir, cfg.UUID = n.name, n.dir, "uuid"
	cfg.Spec, cfg.Members = shard.Spec{Ranges: []kv.Range{{}}, Shards: 1, Replicas: 1}, c.members
	_, err = placement.New(cfg)
	if !errors.Is(err, shard.ErrNewer) || !strings.Contains(err.Error(), fmt.Sprintf("feature level %d, this version knows %d", shard.Level+1, shard.Level)) {
		t.Errorf("the older software does not refuse the map file: %v", err)
	}
	if kept, err := os.ReadFile(file); err != nil || !bytes.Equal(kept, newer) {
		t.Errorf("the map file was changed: %v", err)
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil { // the newer software reads it
		t.Fatal(err)
	}
	n.start()
	c.founded(n)
}
