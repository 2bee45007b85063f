package placement

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// errGone reports that another node has the voter's name or address.
var errGone = errors.New("gossip shows another node in its place")

// gonePrefix begins the address of a voter that is gone. It cannot begin a host
// and port.
const gonePrefix = "gone!"

func goneAddress(id raft.ServerID) raft.ServerAddress {
	return raft.ServerAddress(gonePrefix + string(id))
}

// isGone returns the voter that goneAddress made the address for.
func isGone(to raft.ServerAddress) (raft.ServerID, bool) {
	id, ok := strings.CutPrefix(string(to), gonePrefix)
	return raft.ServerID(id), ok
}

// addresses returns the current address of a voter from gossip to raft. Without
// it, two of three voters that return with new addresses would be unreachable, and
// no leader could be elected to record the new addresses.
//
// A raft message does not name its recipient. A voter that lost its disk and
// returned at its address would vote and append under its old identity, and count
// for entries and votes that are lost. The old identity therefore has no address.
type addresses struct {
	members func() []shard.Member
	// configured returns a voter's address in raft's configuration, the fallback
	// of raft; "" when it has none.
	configured func(raft.ServerID) raft.ServerAddress

	mu    sync.Mutex
	found map[raft.ServerAddress]raft.ServerID // the voter that raft last looked up, by its address; guarded by mu
}

// name returns the node that raft dials at an address, because raft does not pass
// it. "": not known.
func (a *addresses) name(at raft.ServerAddress) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id, ok := a.found[at]; ok {
		return string(nameOf(id))
	}
	return ""
}

// note records the node that raft dials at an address, one address for each voter.
func (a *addresses) note(id raft.ServerID, at raft.ServerAddress) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.found == nil {
		a.found = make(map[raft.ServerAddress]raft.ServerID)
	}
	maps.DeleteFunc(a.found, func(_ raft.ServerAddress, who raft.ServerID) bool { return who == id })
	a.found[at] = id
}

// ServerAddr implements raft.ServerAddressProvider. It fails, and raft uses the
// configured address, when gossip does not know the voter or its address.
func (a *addresses) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	at, err := a.address(id)
	if err != nil {
		a.note(id, a.configured(id))
		return "", err
	}
	a.note(id, at)
	return at, nil
}

func (a *addresses) address(id raft.ServerID) (raft.ServerAddress, error) {
	members := a.members()
	for _, m := range members {
		if serverID(m.Name, m.UUID) == id && m.RaftAddress != "" {
			return raft.ServerAddress(m.RaftAddress), nil
		}
	}
	fallback := a.configured(id)
	for _, m := range members {
		if m.UUID == "" || serverID(m.Name, m.UUID) == id {
			continue
		}
		there := m.State == shard.Alive || m.State == shard.Suspect
		if m.Name == nameOf(id) || there && fallback != "" && m.RaftAddress == string(fallback) {
			return goneAddress(id), nil
		}
	}
	return "", fmt.Errorf("no member is %s", id)
}
