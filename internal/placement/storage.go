package placement

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/shardwatch/shardwatch/internal/durable"
)

const (
	snapshotsKept = 2
	// lockTimeout is how long to wait for the log of a process that ends.
	lockTimeout = 5 * time.Second
)

// storage is where raft keeps its things.
type storage struct {
	logs   *timedLog
	stable raft.StableStore
	snaps  raft.SnapshotStore
	close  func() error
}

func raftDir(dataDir string) string { return filepath.Join(dataDir, "raft") }
func logPath(dataDir string) string { return filepath.Join(raftDir(dataDir), "raft.db") }

func openStorage(dataDir string, log raftLogger) (*storage, error) {
	if err := durable.MakeDir(raftDir(dataDir)); err != nil {
		return nil, fmt.Errorf("open raft storage: %w", err)
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path:        logPath(dataDir),
		BoltOptions: &bbolt.Options{Timeout: lockTimeout},
	})
	if err != nil {
		if errors.Is(err, bolterrors.ErrTimeout) {
			err = fmt.Errorf("another process uses the data directory %s: %w", dataDir, err)
		}
		return nil, fmt.Errorf("open raft log: %w", err)
	}
	if err := durable.SyncDir(raftDir(dataDir)); err != nil { // bbolt syncs the file, not its name
		return nil, errors.Join(fmt.Errorf("open raft log: %w", err), bolt.Close())
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(raftDir(dataDir), snapshotsKept, log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open raft snapshots: %w", err), bolt.Close())
	}
	return &storage{logs: &timedLog{LogStore: bolt}, stable: bolt, snaps: snaps, close: bolt.Close}, nil
}

// Identity returns the UUID of the data directory, made on first use. It lies
// beside the raft log and is made anew when that is gone: a voter that lost
// its log must not come back under its old identity, or entries that a
// majority had committed could be lost.
func Identity(dataDir string) (string, error) {
	path := filepath.Join(raftDir(dataDir), "identity")
	b, err := os.ReadFile(path) //nolint:gosec // the operator names the data directory
	if err == nil {
		id, perr := uuid.Parse(strings.TrimSpace(string(b)))
		if perr == nil && !lostLog(dataDir) {
			return id.String(), nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the node's identity: %w", err)
	}
	id := uuid.NewString()
	if err := durable.MakeDir(raftDir(dataDir)); err != nil {
		return "", fmt.Errorf("write the node's identity: %w", err)
	}
	if err := durable.WriteFile(path, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("write the node's identity: %w", err)
	}
	return id, nil
}

// lostLog reports whether raft ran here (it made its directory of snapshots)
// and its log is gone.
func lostLog(dataDir string) bool {
	_, ran := os.Stat(filepath.Join(raftDir(dataDir), "snapshots"))
	_, log := os.Stat(logPath(dataDir))
	return ran == nil && errors.Is(log, fs.ErrNotExist)
}

// keyCluster is where the stable store keeps the cluster's ID.
const keyCluster = "ShardwatchClusterID"

func (s *storage) clusterID() (string, error) {
	b, err := s.stable.Get([]byte(keyCluster))
	if err != nil {
		if err.Error() == raftboltdb.ErrKeyNotFound.Error() { // raft's in-memory store has an error of its own
			return "", nil
		}
		return "", fmt.Errorf("read the cluster's ID: %w", err)
	}
	return string(b), nil
}

func (s *storage) setClusterID(id string) error {
	if err := s.stable.Set([]byte(keyCluster), []byte(id)); err != nil {
		return fmt.Errorf("write the cluster's ID: %w", err)
	}
	return nil
}
