package placement

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/shardwatch/shardwatch/internal/files/durable"
)

const (
	snapshotsKept = 2
	// lockTimeout bounds the wait for the log while another process ends.
	lockTimeout = 5 * time.Second
)

// storage holds raft's stores.
type storage struct {
	logs   *timedLog
	stable raft.StableStore
	snaps  raft.SnapshotStore
	close  func() error
}

// timedLog is a raft log that reports how long a write has been in progress.
type timedLog struct {
	raft.LogStore
	since atomic.Pointer[time.Time] // when the write in progress began; nil: none
}

// StoreLog writes one entry.
func (l *timedLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs writes entries. Only raft's main loop calls it, one at a time.
func (l *timedLog) StoreLogs(es []*raft.Log) error {
	now := time.Now()
	l.since.Store(&now)
	defer l.since.Store(nil)
	return l.LogStore.StoreLogs(es)
}

// errUnwritten ends raft: its term or its vote was not written.
var errUnwritten = errors.New("the disk of the data directory does not take writes")

// fatalStore is the stable store of one run of raft. Raft panics if its term is not written.
// fatalStore reports the error and ends the goroutine instead: like a crash at this point, this
// neither answers nor continues with a term or a vote that is not on the disk.
type fatalStore struct {
	raft.StableStore
	failed chan error // receives the first error
}

// Set writes a value.
func (s *fatalStore) Set(key, v []byte) error { return s.wrote(s.StableStore.Set(key, v)) }

// SetUint64 writes a number, unless the store has it: raft's start, on the caller's goroutine,
// writes the term that it has read.
func (s *fatalStore) SetUint64(key []byte, v uint64) error {
	if old, _ := s.GetUint64(key); old == v { // a missing number is 0
		return nil
	}
	return s.wrote(s.StableStore.SetUint64(key, v))
}

func (s *fatalStore) wrote(err error) error {
	if err != nil {
		select {
		case s.failed <- fmt.Errorf("%w: %w", errUnwritten, err):
		default:
		}
		runtime.Goexit()
	}
	return nil
}

// raftLogs are the raft logs of a data directory: one for each generation in which the
// node has run raft (see [shard.Map.Recover]). A node that changes to another generation
// opens its log, and never reads the old one again.
type raftLogs interface {
	// newest returns the newest generation that has a log; 0: the first, or none.
	newest() (generation uint64, err error)
	// open opens the log of a generation. It creates a missing log.
	open(generation uint64, log raftLogger) (*storage, error)
	// create makes the log of a generation and calls fill for it. After a crash the
	// log is complete or does not exist.
	create(generation uint64, log raftLogger, fill func(*storage) error) error
}

// diskLogs keeps the log of generation 0 in the directory itself, and each later log
// in a directory named after the generation.
type diskLogs struct{ dir string }

func raftDir(dataDir string) string { return filepath.Join(dataDir, "raft") }

func (d diskLogs) path(generation uint64) string {
	if generation == 0 {
		return d.dir
	}
	return filepath.Join(d.dir, strconv.FormatUint(generation, 10))
}

func (d diskLogs) newest() (generation uint64, err error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("find raft logs: %w", err)
	}
	for _, e := range entries {
		if g, err := strconv.ParseUint(e.Name(), 10, 64); err == nil && e.IsDir() {
			generation = max(generation, g)
		}
	}
	return generation, nil
}

func (d diskLogs) open(generation uint64, log raftLogger) (*storage, error) {
	return openStorage(d.path(generation), log)
}

// unfinished ends the name of an incomplete log.
const unfinished = ".new"

func (d diskLogs) create(generation uint64, log raftLogger, fill func(*storage) error) error {
	if err := d.removeUnfinished(); err != nil {
		return err
	}
	to := d.path(generation)
	s, err := openStorage(to+unfinished, log)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(s), s.close()); err != nil {
		return err
	}
	if err := durable.Rename(to+unfinished, to); err != nil {
		return fmt.Errorf("create raft log: %w", err)
	}
	return nil
}

// removeUnfinished removes the files left by a crash during create.
func (d diskLogs) removeUnfinished() error {
	left, err := filepath.Glob(filepath.Join(d.dir, "*"+unfinished))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return fmt.Errorf("remove an unfinished raft log: %w", err)
	}
	return nil
}

func openStorage(dir string, log raftLogger) (*storage, error) {
	if err := durable.MakeDir(dir); err != nil {
		return nil, fmt.Errorf("open raft storage: %w", err)
	}
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path:        filepath.Join(dir, "raft.db"),
		BoltOptions: &bbolt.Options{Timeout: lockTimeout},
	})
	if err != nil {
		if errors.Is(err, bolterrors.ErrTimeout) {
			err = fmt.Errorf("another process uses the data directory of %s: %w", dir, err)
		}
		return nil, fmt.Errorf("open raft log: %w", err)
	}
	if err := durable.SyncDir(dir); err != nil { // bbolt syncs the file, not its name
		return nil, errors.Join(fmt.Errorf("open raft log: %w", err), bolt.Close())
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open raft snapshots: %w", err), bolt.Close())
	}
	return &storage{logs: &timedLog{LogStore: bolt}, stable: bolt, snaps: snaps, close: bolt.Close}, nil
}

// Identity returns the UUID of the data directory, and creates it on first use. It
// is stored beside the raft log and is created again when that is gone: a voter
// that lost its log must not return under its old identity, or entries that a
// majority had committed could be lost.
func Identity(dataDir string) (string, error) {
	path := filepath.Join(raftDir(dataDir), "identity")
	b, err := os.ReadFile(path) //nolint:gosec // the operator names the data directory
	if err == nil {
		id, perr := uuid.Parse(strings.TrimSpace(string(b)))
		lost, lerr := diskLogs{raftDir(dataDir)}.lost()
		if lerr != nil {
			return "", lerr
		}
		if perr == nil && !lost {
			return id.String(), nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the node's identity: %w", err)
	}
	id := uuid.NewString()
	if err = durable.MakeDir(raftDir(dataDir)); err == nil {
		err = durable.WriteFile(path, []byte(id+"\n"))
	}
	if err != nil {
		return "", fmt.Errorf("write the node's identity: %w", err)
	}
	return id, nil
}

// lost reports whether raft ran here in the newest generation (its directory of
// snapshots exists) and its log is gone.
func (d diskLogs) lost() (bool, error) {
	generation, err := d.newest()
	if err != nil {
		return false, err
	}
	_, ran := os.Stat(filepath.Join(d.path(generation), "snapshots"))
	_, log := os.Stat(filepath.Join(d.path(generation), "raft.db"))
	return ran == nil && errors.Is(log, fs.ErrNotExist), nil
}

// keyCluster is the stable store's key of the cluster's ID.
const keyCluster = "ShardwatchClusterID"

func (s *storage) clusterID() (string, error) {
	b, err := s.stable.Get([]byte(keyCluster))
	if err != nil {
		if err.Error() == raftboltdb.ErrKeyNotFound.Error() { // raft's in-memory store returns another error value
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
