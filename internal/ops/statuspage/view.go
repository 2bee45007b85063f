package statuspage

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// maxGroups bounds the groups of a View to those that fit on a screen.
const maxGroups = 512

// stale is the age above which data is called stale. It is the default of --max-staleness.
const stale = 5 * time.Second

// Level is the severity of a finding.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Bad  Level = "bad"
)

// State is the state of a copy or a shard.
type State string

// The states, the best first. A group has the worst state of its shards.
const (
	// Fine: it serves fresh data.
	Fine State = "ok"
	// Thin, of a shard: some of its copies do not serve, or are not fresh.
	Thin State = "thin"
	// Loading, of a copy: it is being loaded.
	Loading State = "loading"
	// TakenOver, of a shard: its owner does not serve it, and another node reads etcd instead.
	TakenOver State = "taken over"
	// Stale: it serves, but etcd or its source has been silent for a while.
	Stale State = "stale"
	// Quarantined, of a copy: it differs from the other copies, serves no client, and is reloaded.
	Quarantined State = "quarantined"
	// Away, of a copy: its node does not answer, or does not have it.
	Away State = "away"
	// Down, of a shard: no copy of it serves.
	Down State = "down"
)

func (s State) rank() int {
	return slices.Index([]State{Fine, Thin, Loading, TakenOver, Stale, Quarantined, Away, Down}, s)
}

// View is the content of the page at one moment.
type View struct {
	// Self is the reporting node, At its time.
	Self string    `json:"self"`
	At   time.Time `json:"at"`
	// Next is the approximate time until the next view, in seconds.
	Next       float64 `json:"next_seconds"`
	Cluster    string  `json:"cluster_id,omitempty"`
	Lineage    uint64  `json:"lineage"`
	MapVersion uint64  `json:"map_version"`
	// FeatureLevel is the finalized one; 0 while there is no map.
	FeatureLevel int   `json:"feature_level"`
	Level        Level `json:"level"`
	// Verdict is the state of the cluster in a sentence or two.
	Verdict string `json:"verdict"`
	Etcd    Etcd   `json:"etcd"`
	Totals  Totals `json:"totals"`
	Nodes   []Node `json:"nodes"`
	// Groups are the shards in key order: one per group or, if there are more than maxGroups, several
	// neighbours.
	Groups []Group `json:"groups"`
	// News has the latest events, newest first.
	News []Event `json:"news"`
	// KeysPage is the address of the reporting node's key browser.
	KeysPage string `json:"keys_page,omitempty"`

	states map[State]int // of shards
}

// Etcd is the state of etcd as the node with the newest data reports it.
type Etcd struct {
	Revision int64 `json:"revision"`
	// Age is the time since it was read, in seconds; 0 if not Known.
	Age   float64 `json:"age_seconds"`
	Known bool    `json:"known"`
}

// Totals are sums over all answering nodes.
type Totals struct {
	Shards int `json:"shards"`
	// Copies is the number of serving copies, Wanted the number of copies in the map.
	Copies  int   `json:"copies"`
	Wanted  int   `json:"wanted_copies"`
	Watches int64 `json:"watches"`
	// Direct is the number of the nodes' watches at etcd.
	Direct int   `json:"etcd_watches"`
	Keys   int64 `json:"keys"` // each shard counts once
	Bytes  int64 `json:"bytes"`
}

// Node is one member.
type Node struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Level   Level  `json:"level"`
	Zone    string `json:"zone,omitempty"`
	Version string `json:"version,omitempty"`
	// FeatureLevel is the newest that its software supports; 0: its release does not report it. Weight is its
	// share of the shards relative to other nodes.
	FeatureLevel int32 `json:"feature_level,omitempty"`
	Weight       int32 `json:"weight"`

	HTTP     string `json:"http,omitempty"`
	Voter    bool   `json:"voter,omitempty"`
	Leader   bool   `json:"leader,omitempty"`
	Draining bool   `json:"draining,omitempty"`
	// Answers: the node answers, and the following fields are its own report. If not, Note has the reason; if
	// so, Note lists the reasons why the node is not ready.
	Answers bool   `json:"answers"`
	Note    string `json:"note,omitempty"`

	Owned    int `json:"owned"`
	Replicas int `json:"replicas"`
	Relays   int `json:"relays"`
	// Direct is the number of shards that it reads from etcd.
	Direct      int   `json:"direct"`
	Watches     int64 `json:"watches"`
	Connections int64 `json:"connections"`
	// Lag is the largest of its copies behind the other nodes' copies, in revisions; Age is that of its oldest
	// data, in seconds.
	Lag int64   `json:"lag"`
	Age float64 `json:"age_seconds"`
	// Bytes is the memory of its copies and relays.
	Bytes  int64   `json:"bytes"`
	Uptime float64 `json:"uptime_seconds"`
}

// Group is one shard, or several neighbours.
type Group struct {
	// First is the ID of the first shard, Count the number of shards.
	First uint64 `json:"id"`
	Count int    `json:"count"`
	// From and To are its first key and the key after its end; "" at the ends of the key space. Both are
	// omitted if keys are not shown.
	From  *string `json:"from,omitempty"`
	To    *string `json:"to,omitempty"`
	Epoch uint64  `json:"epoch"` // if it is one shard
	State State   `json:"state"`
	// Copies by node: replicas in the map's order, then relays.
	Copies []Copy `json:"copies"`
}

// Copy is one node's copies of a group. Lag and Age are the maximum of its shards, Span is the minimum; the
// other numbers are sums.
type Copy struct {
	Node    int `json:"node"` // index of View.Nodes
	Owned   int `json:"owned,omitempty"`
	Replica int `json:"replica,omitempty"`
	Relay   int `json:"relay,omitempty"`
	// Direct is the number of shards read from etcd; Source is the source of a single shard.
	Direct int    `json:"direct,omitempty"`
	Source string `json:"source,omitempty"`
	State  State  `json:"state"`
	// Lag is the number of revisions behind the furthest copy of the shard, Age the maximum age of the data, in
	// seconds.
	Lag int64   `json:"lag,omitempty"`
	Age float64 `json:"age_seconds,omitempty"`
	// Span is the time covered by the window, in seconds.
	Span float64 `json:"span_seconds,omitempty"`
	// Verified is the time since it last matched another copy, in seconds; 0: never.
	Verified float64 `json:"verified_seconds,omitempty"`
	Keys     int64   `json:"keys,omitempty"`
	Bytes    int64   `json:"bytes,omitempty"`
	Watchers int64   `json:"watchers,omitempty"`
}

// observed is the input of a view.
type observed struct {
	self    string
	at      time.Time
	shards  *shard.Map // nil if unknown
	members []*shardwatchv1.Member
	// status has the answers, silent the reasons of nodes without one. Both are nil if no node was asked: then
	// there is no view.
	status map[string]*shardwatchv1.StatusResponse
	silent map[string]string
}

// view returns the observation as a View, with keys only if the viewer may see them.
func (o *observed) view(keys bool) *View {
	v := &View{Self: o.self, At: o.at.UTC(), Groups: []Group{}, Nodes: make([]Node, len(o.members)), states: make(map[State]int)}
	index := make(map[string]int, len(o.members))
	copies := make(map[shard.ID]map[int]*shardwatchv1.ReplicaStatus)
	for i, m := range o.members {
		v.Nodes[i] = o.node(m)
		index[m.GetName()] = i
		s := o.status[m.GetName()]
		if s == nil {
			continue
		}
		if age := s.GetEtcdAge().AsDuration().Seconds(); s.GetEtcdRevision() > 0 && (!v.Etcd.Known || age < v.Etcd.Age) {
			v.Etcd.Age, v.Etcd.Known = age, true
		}
		v.Etcd.Revision = max(v.Etcd.Revision, s.GetEtcdRevision())
		v.Totals.Watches += s.GetWatches()
		for _, r := range s.GetReplicas() {
			id := shard.ID(r.GetShardId())
			if copies[id] == nil {
				copies[id] = make(map[int]*shardwatchv1.ReplicaStatus)
			}
			copies[id][i] = r
			v.Nodes[i].Bytes += bytesOf(r)
		}
		v.Totals.Bytes += v.Nodes[i].Bytes
	}
	if m := o.shards; m != nil {
		v.Cluster, v.Lineage, v.MapVersion, v.Totals.Shards = m.ClusterID, m.Lineage, m.Version, len(m.Shards)
		v.FeatureLevel = m.FinalLevel()
		each := max(1, (len(m.Shards)+maxGroups-1)/maxGroups)
		for some := range slices.Chunk(m.Shards, each) {
			v.Groups = append(v.Groups, v.group(some, index, copies, keys))
		}
	}
	v.Level, v.Verdict = v.judge()
	return v
}

func bytesOf(r *shardwatchv1.ReplicaStatus) int64 {
	return r.GetStateBytes() + r.GetWindowBytes() + r.GetRootsBytes() + r.GetTombstoneBytes()
}

// keysPage returns the address of this node's key browser; "": unknown.
func (o *observed) keysPage(secure bool) string {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	for _, m := range o.members {
		if m.GetName() == o.self && m.GetClientAddress() != "" {
			return scheme + m.GetClientAddress() + "/ui/"
		}
	}
	return ""
}

// node returns a member's view, without its shards.
func (o *observed) node(m *shardwatchv1.Member) Node {
	n := Node{
		Name: m.GetName(), Zone: m.GetZone(), Version: m.GetVersion(), HTTP: m.GetHttpAddress(),
		Voter: m.GetVoter(), Leader: m.GetLeader(), Draining: m.GetDraining(), Level: OK,
		State:        strings.ToLower(strings.TrimPrefix(m.GetState().String(), "MEMBER_STATE_")),
		FeatureLevel: m.GetFeatureLevel(), Weight: max(m.GetWeight(), 1),
	}
	s := o.status[n.Name]
	switch {
	case s != nil:
		n.Answers, n.Watches, n.Connections, n.Uptime = true, s.GetWatches(), s.GetConnections(), s.GetUptime().AsDuration().Seconds()
		n.Note = strings.Join(s.GetNotReady(), "; ")
		if s.GetRefusal() != "" {
			n.Note, n.Level = s.GetRefusal(), Bad
		}
	default:
		n.Note = o.silent[n.Name]
	}
	switch {
	case s == nil && m.GetState() != shardwatchv1.MemberState_MEMBER_STATE_LEFT:
		n.Level = Bad
	case n.Level == OK && (n.Note != "" || n.Draining || m.GetState() != shardwatchv1.MemberState_MEMBER_STATE_ALIVE):
		n.Level = Warn
	}
	return n
}

// group sums up shards, and adds them to the nodes and the totals.
func (v *View) group(shards []shard.Shard, index map[string]int, copies map[shard.ID]map[int]*shardwatchv1.ReplicaStatus, keys bool) Group {
	g := Group{First: uint64(shards[0].ID), Count: len(shards), State: Fine, Copies: []Copy{}}
	if g.Count == 1 {
		g.Epoch = shards[0].Epoch
	}
	if keys {
		from, to := show(shards[0].Range.Start), show(shards[len(shards)-1].Range.End)
		g.From, g.To = &from, &to
	}
	at := make(map[int]int) // node -> index of Copies
	for i := range shards {
		list := v.copies(&shards[i], index, copies[shards[i].ID])
		state := shardState(list)
		v.states[state]++
		g.State = worse(g.State, state)
		var keys int64
		for _, c := range list {
			n := &v.Nodes[c.Node]
			n.Owned, n.Replicas, n.Relays, n.Direct = n.Owned+c.Owned, n.Replicas+c.Replica, n.Relays+c.Relay, n.Direct+c.Direct
			n.Lag, n.Age = max(n.Lag, c.Lag), max(n.Age, c.Age)
			v.Totals.Direct += c.Direct
			if c.Relay == 0 {
				v.Totals.Wanted++
				if serves(c.State) {
					v.Totals.Copies++
				}
			}
			keys = max(keys, c.Keys)
			if k, ok := at[c.Node]; ok {
				g.Copies[k].add(&c)
				continue
			}
			at[c.Node] = len(g.Copies)
			g.Copies = append(g.Copies, c)
		}
		v.Totals.Keys += keys
	}
	return g
}

// copies returns the copies of one shard: replicas in the map's order, then relays.
func (v *View) copies(s *shard.Shard, index map[string]int, status map[int]*shardwatchv1.ReplicaStatus) []Copy {
	furthest := int64(0)
	for _, r := range status {
		furthest = max(furthest, r.GetProgress())
	}
	var out []Copy
	named := make(map[int]bool)
	for i, name := range s.Replicas {
		at, ok := index[string(name)]
		if !ok { // not yet known to gossip, or forgotten
			continue
		}
		named[at] = true
		c := copyOf(at, status[at], furthest)
		if i == 0 {
			c.Owned = 1
		} else {
			c.Replica = 1
		}
		if r := status[at]; r == nil || r.GetRelay() {
			c.State = Away
		}
		out = append(out, c)
	}
	for _, at := range sortedKeys(status) {
		if !named[at] {
			c := copyOf(at, status[at], furthest)
			c.Relay = 1
			out = append(out, c)
		}
	}
	return out
}

func sortedKeys(m map[int]*shardwatchv1.ReplicaStatus) []int {
	out := make([]int, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func copyOf(node int, r *shardwatchv1.ReplicaStatus, furthest int64) Copy {
	c := Copy{Node: node, State: Away}
	if r == nil {
		return c
	}
	c.Lag, c.Age, c.Span = furthest-r.GetProgress(), r.GetAge().AsDuration().Seconds(), r.GetWindowSpan().AsDuration().Seconds()
	c.Verified = r.GetVerifiedAge().AsDuration().Seconds()
	c.Keys, c.Bytes, c.Watchers = r.GetKeys(), bytesOf(r), r.GetWatchers()
	switch r.GetSource() {
	case shardwatchv1.ReplicaSource_REPLICA_SOURCE_ETCD:
		c.Direct, c.Source = 1, "etcd"
	case shardwatchv1.ReplicaSource_REPLICA_SOURCE_PEER:
		c.Source = r.GetSourceNode()
	}
	switch {
	case r.GetQuarantined():
		c.State, c.Lag = Quarantined, 0
	case !r.GetReady():
		c.State, c.Lag = Loading, 0
	case r.GetAge() == nil || r.GetAge().AsDuration() > stale:
		c.State = Stale
	default:
		c.State = Fine
	}
	return c
}

// add sums up copies of one node.
func (c *Copy) add(o *Copy) {
	c.Owned, c.Replica, c.Relay, c.Direct = c.Owned+o.Owned, c.Replica+o.Replica, c.Relay+o.Relay, c.Direct+o.Direct
	c.Keys, c.Bytes, c.Watchers = c.Keys+o.Keys, c.Bytes+o.Bytes, c.Watchers+o.Watchers
	c.Lag, c.Age, c.Span = max(c.Lag, o.Lag), max(c.Age, o.Age), min(c.Span, o.Span)
	c.Verified = max(c.Verified, o.Verified)
	c.State, c.Source = worse(c.State, o.State), ""
}

// show returns a key for display: unchanged if printable, else quoted in Go's syntax.
func show(key string) string {
	if utf8.ValidString(key) && strings.IndexFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return key
	}
	return strconv.Quote(key)
}
