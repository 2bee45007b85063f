package placement

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// fsm is the state that the voters agree on: the map, and the latest requests. Raft
// calls it from one goroutine.
type fsm struct {
	m        *shard.Map
	requests requests
	show     func(*shard.Map) error
	voted    func() // the voters may have changed
	// failed is set once the log or a snapshot holds data that this version cannot
	// apply. After that no entry is applied: a guess would make this node's map
	// differ from the others'.
	failed error
	broken chan error // receives failed, once
}

func newFSM(show func(*shard.Map) error, voted func()) *fsm {
	return &fsm{show: show, voted: voted, broken: make(chan error, 1)}
}

// outcome is the result of Apply.
type outcome struct {
	version uint64
	err     error
}

// Apply applies one committed entry.
func (f *fsm) Apply(l *raft.Log) any {
	if f.failed != nil {
		return outcome{err: f.failed}
	}
	c, err := shard.DecodeCommand(l.Data)
	if err != nil {
		return outcome{err: f.fail(fmt.Errorf("raft log, entry %d: %w", l.Index, err))}
	}
	if v, ok := f.requests.find(c.RequestID); ok {
		return outcome{version: v}
	}
	next, err := shard.Apply(f.m, c)
	if err != nil {
		return outcome{err: err}
	}
	if err := f.show(next); err != nil {
		return outcome{err: f.fail(fmt.Errorf("raft log, entry %d: %w", l.Index, err))}
	}
	f.m = next
	f.requests.add(request{RequestID: c.RequestID, Version: next.Version})
	return outcome{version: next.Version}
}

// StoreConfiguration implements raft.ConfigurationStore: raft calls it for each
// committed configuration.
func (f *fsm) StoreConfiguration(uint64, raft.Configuration) { f.voted() }

func (f *fsm) fail(err error) error {
	f.failed = err
	select {
	case f.broken <- err:
	default:
	}
	return err
}

// snapshotLevel is the feature level of snapshots. See shard.Level.
const snapshotLevel = 1

// fsmState is a snapshot after its level byte.
type fsmState struct {
	Map      []byte    `json:"map,omitempty"` // shard.EncodeMap; empty: not founded
	Requests []request `json:"ledger"`
}

// Snapshot returns the current state. Apply does not change a snapshot.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.failed != nil {
		return nil, f.failed
	}
	return &fsmSnapshot{m: f.m, requests: slices.Clone(f.requests)}, nil
}

// Restore replaces the state with a snapshot.
func (f *fsm) Restore(r io.ReadCloser) (err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	m, kept, err := readSnapshot(r)
	if err != nil {
		return f.fail(err)
	}
	if m != nil {
		if err := f.show(m); err != nil {
			return f.fail(fmt.Errorf("raft snapshot: %w", err))
		}
	}
	f.m, f.requests = m, nil
	for _, r := range kept {
		f.requests.add(r)
	}
	return nil
}

func readSnapshot(r io.Reader) (*shard.Map, []request, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, fmt.Errorf("read raft snapshot: %w", err)
	}
	if len(b) == 0 {
		return nil, nil, errors.New("read raft snapshot: it is empty")
	}
	if b[0] > snapshotLevel {
		return nil, nil, fmt.Errorf("raft snapshot of level %d: %w", b[0], shard.ErrNewer)
	}
	var s fsmState
	if err := json.Unmarshal(b[1:], &s); err != nil {
		return nil, nil, fmt.Errorf("read raft snapshot: %w", err)
	}
	if len(s.Map) == 0 {
		return nil, s.Requests, nil
	}
	m, err := shard.DecodeMap(s.Map)
	if err != nil {
		return nil, nil, fmt.Errorf("read raft snapshot: %w", err)
	}
	return m, s.Requests, nil
}

type fsmSnapshot struct {
	m        *shard.Map
	requests []request
}

// Persist writes the snapshot.
func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	err := s.write(sink)
	if err != nil {
		return errors.Join(fmt.Errorf("write raft snapshot: %w", err), sink.Cancel())
	}
	return sink.Close()
}

func (s *fsmSnapshot) write(w io.Writer) error {
	state := fsmState{Requests: s.requests}
	if s.m != nil {
		b, err := shard.EncodeMap(s.m)
		if err != nil {
			return err
		}
		state.Map = b
	}
	b, err := json.Marshal(state)
	if err != nil {
		return err
	}
	_, err = w.Write(append([]byte{snapshotLevel}, b...))
	return err
}

// Release does nothing: a snapshot holds only values.
func (s *fsmSnapshot) Release() {}

// requestsKept is how many request IDs are kept. Retries follow within seconds,
// and changes of the map are rare.
const requestsKept = 512

// request is an applied request.
type request struct {
	RequestID string `json:"id"`
	Version   uint64 `json:"version"` // of the map it made
}

// requests are the last applied requests, the oldest first. A repeated request is
// answered from them and not applied again. Refusals are not kept: they change
// nothing, and the version that a command was made for refuses it again.
type requests []request

func (r *requests) add(one request) {
	if one.RequestID == "" {
		return
	}
	if len(*r) == requestsKept {
		*r = slices.Delete(*r, 0, 1)
	}
	*r = append(*r, one)
}

func (r requests) find(id string) (version uint64, ok bool) {
	for _, one := range slices.Backward(r) {
		if id != "" && one.RequestID == id {
			return one.Version, true
		}
	}
	return 0, false
}
