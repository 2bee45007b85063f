package statuspage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Event is an observed change.
type Event struct {
	// At is when this node observed it, ID its number on this node.
	ID    uint64    `json:"id"`
	At    time.Time `json:"at"`
	Level Level     `json:"level"`
	Text  string    `json:"text"`
}

// maxNews bounds the kept events.
const maxNews = 100

// news returns the changes between two observations, as sentences. A change of many shards is one event.
func news(before, after *observed) []Event {
	var out []Event
	say := func(l Level, format string, args ...any) {
		out = append(out, Event{At: after.at.UTC(), Level: l, Text: fmt.Sprintf(format, args...)})
	}
	memberNews(before, after, say)
	if before.shards != nil && after.shards != nil && before.shards.Version != after.shards.Version {
		mapNews(before.shards, after.shards, say)
	}
	if before.status != nil && after.status != nil {
		sourceNews(before, after, say)
	}
	return out
}

type sayer func(l Level, format string, args ...any)

// memberNews reports changes of nodes in gossip and raft.
func memberNews(before, after *observed, say sayer) {
	was := make(map[string]*shardwatchv1.Member)
	leader := ""
	for _, m := range before.members {
		was[m.GetName()] = m
		if m.GetLeader() {
			leader = m.GetName()
		}
	}
	for _, m := range after.members {
		name, old := m.GetName(), was[m.GetName()]
		switch {
		case old == nil && m.GetState() == shardwatchv1.MemberState_MEMBER_STATE_ALIVE:
			say(OK, "%s has joined.", name)
		case old == nil:
		case old.GetState() != m.GetState():
			switch m.GetState() {
			case shardwatchv1.MemberState_MEMBER_STATE_ALIVE:
				say(OK, "%s is alive.", name)
			case shardwatchv1.MemberState_MEMBER_STATE_SUSPECT:
				say(Warn, "%s is suspected: it does not answer gossip.", name)
			case shardwatchv1.MemberState_MEMBER_STATE_DEAD:
				say(Bad, "%s is dead: it stopped without leaving the cluster.", name)
			case shardwatchv1.MemberState_MEMBER_STATE_LEFT:
				say(OK, "%s has left.", name)
			case shardwatchv1.MemberState_MEMBER_STATE_UNSPECIFIED:
			}
		case old.GetUuid() != m.GetUuid():
			say(Warn, "%s is back with another data directory.", name)
		}
		if m.GetDraining() && !old.GetDraining() && old != nil {
			say(OK, "%s drains.", name)
		}
		if m.GetLeader() && name != leader {
			say(OK, "%s leads the voters.", name)
		}
	}
}

// mapNews reports changes of the shard map.
func mapNews(before, after *shard.Map, say sayer) {
	if before.Lineage != after.Lineage {
		reason := ""
		if after.Origin != nil {
			reason = ": " + after.Origin.Reason
		}
		say(Bad, "Lineage %d has begun%s. All shards are reloaded.", after.Lineage, reason)
	}
	type change struct{ from, to shard.NodeID }
	owners := make(map[change]int)
	lost, gained := make(map[shard.NodeID]int), make(map[shard.NodeID]int)
	old := make(map[shard.ID]*shard.Shard, len(before.Shards))
	for i := range before.Shards {
		old[before.Shards[i].ID] = &before.Shards[i]
	}
	var born []shard.ID
	for i := range after.Shards {
		s := &after.Shards[i]
		was := old[s.ID]
		delete(old, s.ID)
		if was == nil {
			born = append(born, s.ID)
			continue
		}
		if was.Owner() != s.Owner() {
			owners[change{was.Owner(), s.Owner()}]++
		}
		for _, n := range was.Replicas {
			if !slices.Contains(s.Replicas, n) {
				lost[n]++
			}
		}
		for _, n := range s.Replicas {
			if !slices.Contains(was.Replicas, n) {
				gained[n]++
			}
		}
	}
	switch gone := slices.Sorted(maps.Keys(old)); {
	case len(born) > 0 && len(gone) == 0 && len(before.Shards) == 0:
		say(OK, "The cluster is founded with %s.", count(len(born), "shard"))
	case len(born) > len(gone):
		say(OK, "Split: %s became %s.", ids(gone), ids(born))
	case len(born)+len(gone) > 0:
		say(OK, "Merged: %s became %s.", ids(gone), ids(born))
	}
	for _, c := range slices.SortedFunc(maps.Keys(owners), func(a, b change) int {
		return strings.Compare(string(a.from+"\x00"+a.to), string(b.from+"\x00"+b.to))
	}) {
		say(OK, "%s owns %s of %s.", orNobody(c.to), count(owners[c], "shard"), orNobody(c.from))
	}
	for _, n := range slices.Sorted(maps.Keys(gained)) {
		say(OK, "%s receives %s.", n, copiesOf(gained[n]))
	}
	for _, n := range slices.Sorted(maps.Keys(lost)) {
		say(OK, "%s gives up %s.", n, copiesOf(lost[n]))
	}
}

func copiesOf(n int) string {
	if n == 1 {
		return "a copy of 1 shard"
	}
	return fmt.Sprintf("copies of %d shards", n)
}

func orNobody(n shard.NodeID) shard.NodeID {
	if n == "" {
		return "no node"
	}
	return n
}

// ids lists the shards, or counts them if there are many.
func ids(list []shard.ID) string {
	const most = 4
	if len(list) > most {
		return count(len(list), "shard")
	}
	names := make([]string, len(list))
	for i, id := range list {
		names[i] = fmt.Sprint(id)
	}
	if len(list) == 1 {
		return "shard " + names[0]
	}
	return "shards " + strings.Join(names, ", ")
}

// sourceNews reports changes in the nodes' own statuses: the sources of their events, and whether they serve.
func sourceNews(before, after *observed, say sayer) {
	owners := make(map[uint64]string)
	if after.shards != nil {
		for i := range after.shards.Shards {
			owners[uint64(after.shards.Shards[i].ID)] = string(after.shards.Shards[i].Owner())
		}
	}
	for _, m := range after.members {
		name := m.GetName()
		was, is := before.status[name], after.status[name]
		switch {
		case was != nil && is == nil && m.GetState() != shardwatchv1.MemberState_MEMBER_STATE_LEFT:
			say(Bad, "%s does not answer: %s.", name, after.silent[name])
		case was == nil && is != nil && before.silent[name] != "":
			say(OK, "%s answers again.", name)
		}
		if was == nil || is == nil {
			continue
		}
		oldEtcd, newEtcd := was.GetEtcdAge().AsDuration() > stale, is.GetEtcdAge().AsDuration() > stale
		if newEtcd && !oldEtcd {
			say(Bad, "etcd does not answer %s.", name)
		} else if oldEtcd && !newEtcd {
			say(OK, "etcd answers %s again.", name)
		}
		if len(was.GetNotReady()) > 0 && len(is.GetNotReady()) == 0 {
			say(OK, "%s is ready.", name)
		}
		old := make(map[uint64]*shardwatchv1.ReplicaStatus)
		for _, r := range was.GetReplicas() {
			old[r.GetShardId()] = r
		}
		taken, back, wrong, healed := make(map[string]int), 0, 0, 0
		for _, r := range is.GetReplicas() {
			o := old[r.GetShardId()]
			switch {
			case r.GetQuarantined() && !o.GetQuarantined():
				wrong++
			case o.GetQuarantined() && r.GetReady():
				healed++
			}
			if o == nil || r.GetRelay() || o.GetRelay() {
				continue
			}
			direct := r.GetSource() == shardwatchv1.ReplicaSource_REPLICA_SOURCE_ETCD
			wasDirect := o.GetSource() == shardwatchv1.ReplicaSource_REPLICA_SOURCE_ETCD
			owner := owners[r.GetShardId()]
			switch {
			case direct && !wasDirect && owner != name:
				taken[owner]++
			case !direct && wasDirect && r.GetSourceNode() != "":
				back++
			}
		}
		for _, owner := range slices.Sorted(maps.Keys(taken)) {
			say(Warn, "%s takes %s over from %s: it reads etcd itself.", name, count(taken[owner], "shard"), owner)
		}
		if wrong > 0 {
			say(Bad, "%s has a wrong copy of %s: it is reloaded, and other nodes serve it.", name, count(wrong, "shard"))
		}
		if healed > 0 {
			say(OK, "%s has repaired its copy of %s.", name, count(healed, "shard"))
		}
		if back > 0 {
			say(OK, "%s follows the owners of %s again.", name, count(back, "shard"))
		}
	}
}
