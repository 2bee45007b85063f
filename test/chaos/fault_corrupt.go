package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// corruptions are faults that change bytes of one node.
func corruptions() []Fault {
	return []Fault{
		{
			Name: "bitflip", About: "one byte of a key's record flips in one node's memory, of its value or its revision, at the owner or another replica by turns; the node must heal and no other may notice",
			Inject: flipByte,
		},
		{
			Name: "bitflip-disk", About: "SIGKILL to all nodes at once; before they start again a second later, one byte of one node's saved history flips",
			For: time.Second, Lists: true, Inject: flipSaved,
		},
	}
}

// flipByte flips one byte in the state of one node, and waits until it returns the right record
// again.
func flipByte(ctx context.Context, s *Scene) (heal, error) {
	// The key is outside the ranges of the readers: until the node has compared its copy with the
	// others, reads of the key are wrong. So are lists of everything, which clients of etcd's API
	// make after a compaction.
	s.load.compacting.Lock()
	defer s.load.compacting.Unlock()
	key := fmt.Sprintf("~bitflip/%d/%d", s.Seed, s.Turn)
	value := fmt.Sprintf("record to be damaged %x", s.rng().Perm(16))
	put, err := s.etcd.client.Put(ctx, key, value)
	if err != nil {
		return nil, err
	}
	m, err := s.Cluster.fullMap(ctx)
	if err != nil {
		return nil, err
	}
	of, ok := m.Find(key)
	if !ok || len(of.Replicas) < 2 {
		return nil, fmt.Errorf("no two replicas of the shard of %s", key)
	}
	victim := s.named(of.Replicas[s.Turn%2])
	if victim == nil {
		return nil, fmt.Errorf("replicas %v of shard %d are not all in the cluster", of.Replicas, of.ID)
	}
	right := func(ctx context.Context) (bool, error) {
		r, err := victim.record(ctx, key)
		if err != nil {
			return false, err
		}
		kvs := r.GetKvs()
		return len(kvs) == 1 && string(kvs[0].GetValue()) == value && kvs[0].GetModRevision() == put.Header.Revision, nil
	}
	if err := poll(ctx, patience, victim.Name+" to have the key", func() error {
		if ok, err := right(ctx); err != nil || !ok {
			return fmt.Errorf("it is not there: %w", err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	// A watch that gets the record later would receive the damaged one.
	if err := s.crowd.reach(ctx, put.Header.Revision, patience); err != nil {
		return nil, err
	}
	pattern, at := encodedRecord(key, value, put.Header.Revision, s.Turn%4 >= 2)
	n, err := flipInMemory(victim.proc.pid(), pattern, at)
	if err != nil {
		return nil, err
	}
	s.Say("flipped byte %d of the record of %s in %s, %d copies", at, key, victim.Name, n)
	if ok, _ := right(ctx); ok { // if it does not answer, it is already healing
		return nil, fmt.Errorf("%s still has the record as it was", victim.Name)
	}
	began := time.Now()
	err = poll(ctx, patience, victim.Name+" to heal", func() error {
		if ok, err := right(ctx); err != nil || !ok {
			return fmt.Errorf("its record of %s is wrong: %w", key, err)
		}
		return nil
	})
	s.Say("%s has healed after %v", victim.Name, time.Since(began).Round(time.Second))
	return nil, err
}

// encodedRecord returns a node's encoding of a key with one put, and the offset of a byte in it:
// the first of its mod revision, or the last of its value.
func encodedRecord(key, value string, rev int64, ofRevision bool) (record []byte, at int) {
	encode := func(mod int64) []byte {
		return kv.NewKeyValue(kv.Fields{
			Key: []byte(key), Value: []byte(value), CreateRevision: kv.Revision(rev), ModRevision: kv.Revision(mod), Version: 1,
		}).Encoded()
	}
	record = encode(rev)
	if !ofRevision {
		return record, len(record) - 1
	}
	other := encode(rev ^ 1)
	for record[at] == other[at] {
		at++
	}
	return record, at
}

// named returns the node with a name, or nil.
func (s *Scene) named(id shard.NodeID) *Node {
	for _, n := range s.Cluster.Nodes {
		if n.Name == string(id) {
			return n
		}
	}
	return nil
}

// record reads a key from the node's own copy.
func (n *Node) record(ctx context.Context, key string) (*etcdserverpb.RangeResponse, error) {
	conn, err := n.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return etcdserverpb.NewKVClient(conn).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(key), Serializable: true})
}

// flipSaved kills all nodes, so that they need their saved history, and flips a byte in the saved
// history of one node.
func flipSaved(ctx context.Context, s *Scene) (heal, error) {
	s.last = nil
	victim, err := s.Victim(ctx)
	if err != nil {
		return nil, err
	}
	start, err := s.kill(s.Cluster.Nodes...)
	if err != nil {
		return nil, err
	}
	path, err := victim.savedHistory()
	if err != nil {
		return start, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return start, err
	}
	at := s.rng().IntN(len(b))
	b[at] ^= 1 << s.rng().IntN(8)
	s.Say("flipped a bit of byte %d of %d in %s", at, len(b), path)
	return start, os.WriteFile(path, b, 0o600)
}

// savedHistory returns the path of the biggest file of the node's saved history.
func (n *Node) savedHistory() (path string, err error) {
	var most int64
	err = filepath.WalkDir(n.data, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.ContainsFunc(strings.Split(p, string(filepath.Separator)), func(part string) bool { return strings.HasPrefix(part, "history") }) {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > most {
			path, most = p, info.Size()
		}
		return err
	})
	if err == nil && path == "" {
		err = errors.New("it has saved no history")
	}
	if err != nil {
		return "", fmt.Errorf("find the saved history of %s: %w", n.Name, err)
	}
	return path, nil
}
