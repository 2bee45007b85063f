package membership

import (
	"time"

	"github.com/hashicorp/memberlist"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/protofields"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// MapNews is the newest version of the shard map that gossip has announced, and
// a node that has it. Version 0: none was announced.
type MapNews struct {
	Node    shard.NodeID
	Version uint64
}

// The fields of the message that carries MapNews, in protobuf's wire form after
// newsVersion. Unknown fields are ignored.
const (
	newsVersion = 1

	newsCluster = 1 // bytes, as metaCluster
	newsNode    = 2 // bytes
	newsMap     = 3 // varint
)

// maxNews bounds the message in bytes.
const maxNews = 256

// broadcast is a MapNews that gossip is still sending. There is at most one: newer news replace it.
type broadcast []byte

// Invalidates implements memberlist.Broadcast.
func (broadcast) Invalidates(memberlist.Broadcast) bool { return true }

// Message implements memberlist.Broadcast.
func (b broadcast) Message() []byte { return b }

// Finished implements memberlist.Broadcast.
func (broadcast) Finished() {}

// SetMapVersion announces that this node has that version of the shard map. Each
// node forwards the news once, unless it has received a newer version. That costs
// some dozen bytes for each packet; a version in the metadata would send the
// metadata of every node to every node for each change.
func (m *Membership) SetMapVersion(version uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heardLocked(MapNews{Node: m.self.Name, Version: version})
}

// MapNews returns the newest news, and a channel that is closed when there are newer
// news.
func (m *Membership) MapNews() (MapNews, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.news, m.newsChanged.Wait()
}

func (m *Membership) heardLocked(n MapNews) {
	if n.Version <= m.news.Version || n.Node == "" {
		return
	}
	m.news = n
	m.queue.QueueBroadcast(broadcast(encodeNews(m.clusterLocked(), n)))
	m.newsChanged.Notify()
}

// hear handles a message of another node. It ignores unreadable news and news
// of another cluster: gossip is a hint.
func (m *Membership) hear(b []byte) {
	cluster, n, ok := decodeNews(b)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ours := m.clusterLocked(); ours == "" || ours == cluster {
		m.heardLocked(n)
	}
}

func encodeNews(cluster string, n MapNews) []byte {
	b := []byte{newsVersion}
	b = protowire.AppendTag(b, newsCluster, protowire.BytesType)
	b = protowire.AppendBytes(b, packUUID(cluster))
	b = protowire.AppendTag(b, newsNode, protowire.BytesType)
	b = protowire.AppendString(b, string(n.Node))
	b = protowire.AppendTag(b, newsMap, protowire.VarintType)
	return protowire.AppendVarint(b, n.Version)
}

func decodeNews(b []byte) (cluster string, n MapNews, ok bool) {
	if len(b) == 0 || len(b) > maxNews || b[0] != newsVersion {
		return "", MapNews{}, false
	}
	for f, err := range protofields.All(b[1:], errMeta) {
		switch {
		case err != nil:
			return "", MapNews{}, false
		case f.Type == protowire.BytesType && f.Number == newsCluster:
			cluster = unpackUUID(f.Bytes)
		case f.Type == protowire.BytesType && f.Number == newsNode:
			n.Node = shard.NodeID(f.Bytes)
		case f.Type == protowire.VarintType && f.Number == newsMap:
			n.Version = f.Uint
		}
	}
	return cluster, n, n.Node != "" && n.Version > 0
}

// NotifyMsg handles news from another node.
func (d *delegate) NotifyMsg(b []byte) { d.m().hear(b) }

// GetBroadcasts returns the news to forward. limit is the part of a packet that
// memberlist's own messages leave free.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	if d.quiet.offered(time.Now(), limit) {
		d.looks.Wake()
	}
	return d.m().queue.GetBroadcasts(overhead, limit)
}

// LocalState returns the news, for a node that joins or has missed them.
func (d *delegate) LocalState(bool) []byte {
	m := d.m()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.news.Version == 0 {
		return nil
	}
	return encodeNews(m.clusterLocked(), m.news)
}

// MergeRemoteState handles the news of the other side.
func (d *delegate) MergeRemoteState(b []byte, _ bool) { d.m().hear(b) }
