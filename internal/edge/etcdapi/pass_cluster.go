package etcdapi

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/edge/etcdview"
)

// cluster returns the methods of the Cluster service. The member list has the cache
// nodes, so that clients that sync their endpoints (clientv3's Sync) stay with the cache.
func (a *API) cluster() methods {
	const why = "a cache node is not a member of etcd: send the call to etcd"
	return methods{
		"MemberList": answered(a.memberList), "MemberAdd": refused(why), "MemberRemove": refused(why),
		"MemberUpdate": refused(why), "MemberPromote": refused(why),
	}
}

// memberMaintenance returns the methods of the Maintenance service that act on one member of etcd:
// through a node, a client could not choose the member.
func memberMaintenance() methods {
	const why = "it acts on one member of etcd: send the call to etcd"
	return methods{
		"Defragment": refused(why), "Hash": refused(why), "HashKV": refused(why), "Snapshot": refused(why),
		"MoveLeader": refused(why), "Downgrade": refused(why),
	}
}

func (a *API) memberList(ctx context.Context, _ *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	caller, err := a.view.Caller(ctx)
	if err == nil {
		err = a.judge(ctx, caller, etcdserverpb.Cluster_MemberList_FullMethodName, nil)
	}
	if err != nil {
		return nil, err
	}
	if a.cfg.Guard != nil {
		if _, err := a.cfg.Guard.Caller(a.cfg.Access.Forward(ctx)); err != nil {
			return nil, err
		}
	}
	out := &etcdserverpb.MemberListResponse{Header: a.view.Header(0)} // as etcd's, without a revision
	for _, m := range a.cfg.Members() {
		scheme := "http://"
		if m.TLS {
			scheme = "https://"
		}
		member := &etcdserverpb.Member{ID: etcdview.MemberID(m.Name), Name: string(m.Name), ClientURLs: []string{scheme + m.Client}}
		if m.Peer != "" {
			member.PeerURLs = []string{scheme + m.Peer}
		}
		out.Members = append(out.Members, member)
	}
	return out, nil
}
