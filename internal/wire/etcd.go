package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Field numbers of etcd's hot messages (etcdserverpb/rpc.proto), beside items;
// see the remark in encode.go.
const (
	etcdHeader = 1 // of every response

	headerCluster  = 1 // ResponseHeader.cluster_id
	headerMember   = 2 // ResponseHeader.member_id
	headerRevision = 3 // ResponseHeader.revision
	headerTerm     = 4 // ResponseHeader.raft_term

	etcdWatchID       = 2 // WatchResponse.watch_id
	etcdWatchFragment = 7 // WatchResponse.fragment
)

// Header is an etcdserverpb.ResponseHeader.
type Header struct {
	Cluster, Member, Term uint64
	Revision              kv.Revision
}

// etcdHeader appends an etcd response's header.
func (m *message) etcdHeader(h Header) {
	m.header(etcdHeader, h.size())
	for i, v := range h.fields() {
		m.varint(protowire.Number(i+1), v)
	}
}

// size returns the length of the header's encoding.
func (h Header) size() int {
	size := 0
	for _, v := range h.fields() {
		if v != 0 {
			size += 1 + protowire.SizeVarint(v)
		}
	}
	return size
}

// fields returns the values of fields 1 to 4.
func (h Header) fields() [4]uint64 {
	return [headerTerm]uint64{
		headerCluster - 1: h.Cluster, headerMember - 1: h.Member,
		headerRevision - 1: uint64(h.Revision), headerTerm - 1: h.Term, //nolint:gosec // proto's int64
	}
}
