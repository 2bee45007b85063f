package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Restore configures an etcd that is restored from a snapshot.
type Restore struct {
	// Snapshot is a file that SaveSnapshot wrote.
	Snapshot string
	// Token is the token of the new cluster; empty: the default, with which a
	// restored cluster of the same members has the ID of the previous cluster.
	Token string
	// BumpRevision adds to the revision, and marks all revisions up to the result
	// as compacted, like `etcdutl snapshot restore --bump-revision
	// --mark-compacted`. 0: neither.
	BumpRevision uint64
}

// SaveSnapshot writes a snapshot of the etcd at endpoint (host:port) to a file.
func SaveSnapshot(ctx context.Context, endpoint, path string) error {
	cfg := clientv3.Config{Endpoints: []string{"http://" + endpoint}, Logger: zap.NewNop()}
	if _, err := snapshot.NewV3(zap.NewNop()).Save(ctx, cfg, path); err != nil {
		return fmt.Errorf("save a snapshot: %w", err)
	}
	return nil
}

// restore replaces dir with the data directory of a member that begins with a snapshot.
func restore(r Restore, dir, name, peerURL, cluster, token string) error {
	if r.Token != "" {
		token = r.Token
	}
	fresh := dir + ".restored"
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: r.Snapshot, Name: name, OutputDataDir: fresh,
		PeerURLs: []string{peerURL}, InitialCluster: cluster, InitialClusterToken: token,
		RevisionBump: r.BumpRevision, MarkCompacted: r.BumpRevision > 0,
	})
	if err != nil {
		return fmt.Errorf("restore %s: %w", r.Snapshot, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("restore %s: %w", r.Snapshot, err)
	}
	if err := os.Rename(fresh, dir); err != nil {
		return fmt.Errorf("restore %s: %w", r.Snapshot, err)
	}
	return nil
}

// RestoreInto replaces dir with the data directory of a single member that begins with a snapshot.
// The member must not run.
func RestoreInto(r Restore, dir, name, peerURL string) error {
	return restore(r, dir, name, peerURL, name+"="+peerURL, "etcd-cluster")
}

// Restore makes a stopped etcd begin with a snapshot at its next start, with the
// same members and on the same address.
func (p *Process) Restore(r Restore) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil {
		return errors.New("etcd is running: stop it, then restore")
	}
	return restore(r, p.cfg.Dir, p.cfg.Name, "http://"+p.peer, p.cfg.Cluster, "etcd-cluster")
}

// Snapshot writes a snapshot to a new file.
func (s *Server) Snapshot(ctx context.Context) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "snapshot.db")
	if err := SaveSnapshot(ctx, s.addr, path); err != nil {
		s.t.Fatalf("%v", err)
	}
	return path
}

// Restore runs a stopped etcd again from a snapshot, on its port.
func (s *Server) Restore(r Restore, options ...Option) {
	s.t.Helper()
	if err := restore(r, s.dir, devName, devPeer, devName+"="+devPeer, "etcd-cluster"); err != nil {
		s.t.Fatalf("%v", err)
	}
	s.Restart(options...)
}

// The member as devetcd runs it: a single member, whose peer port is not used.
const (
	devName = "dev"
	devPeer = "http://127.0.0.1:0"
)
