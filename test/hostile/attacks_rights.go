package hostile

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// call is a unary call that its caller has no right to.
type call struct {
	method  string
	request proto.Message
}

// forbidden makes calls in turn as fast as it can. A call that succeeds is a breach.
func (a *attacker) forbidden(ctx context.Context, calls ...call) error {
	conn, err := a.dial()
	if err != nil {
		return err
	}
	return a.many(ctx, 10, func(ctx context.Context, i int) error {
		for n := i; ctx.Err() == nil; n++ {
			c := calls[n%len(calls)]
			err := conn.Invoke(ctx, c.method, c.request, new(wire.Encoded))
			if err == nil {
				a.got(fmt.Sprintf("%s succeeds", c.method))
			}
			a.was("answers", err)
		}
		return nil
	})
}

// administer makes calls that only administrators may make.
func administer(ctx context.Context, a *attacker) error {
	return a.forbidden(ctx,
		call{etcdserverpb.Maintenance_Alarm_FullMethodName, &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}},
		call{etcdserverpb.Maintenance_Defragment_FullMethodName, &etcdserverpb.DefragmentRequest{}},
		call{etcdserverpb.KV_Compact_FullMethodName, &etcdserverpb.CompactionRequest{Revision: 2}},
		call{etcdserverpb.Auth_UserAdd_FullMethodName, &etcdserverpb.AuthUserAddRequest{Name: "mallory", Password: "m"}},
		call{etcdserverpb.Cluster_MemberRemove_FullMethodName, &etcdserverpb.MemberRemoveRequest{ID: 1}},
		call{pb.AdminService_BumpLineage_FullMethodName, &pb.BumpLineageRequest{}},
		call{pb.AdminService_ClusterStatus_FullMethodName, &pb.ClusterStatusRequest{}},
	)
}

// unauthenticated makes calls that etcd permits to its users, without a token.
func unauthenticated(ctx context.Context, a *attacker) error {
	return a.forbidden(ctx,
		call{etcdserverpb.Maintenance_Alarm_FullMethodName, &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}},
		call{etcdserverpb.Maintenance_Status_FullMethodName, &etcdserverpb.StatusRequest{}},
		call{etcdserverpb.Lease_LeaseGrant_FullMethodName, &etcdserverpb.LeaseGrantRequest{TTL: 600}},
		call{etcdserverpb.Lease_LeaseLeases_FullMethodName, &etcdserverpb.LeaseLeasesRequest{}},
		call{etcdserverpb.Lease_LeaseTimeToLive_FullMethodName, &etcdserverpb.LeaseTimeToLiveRequest{ID: crowdLease, Keys: true}},
		call{etcdserverpb.KV_Put_FullMethodName, &etcdserverpb.PutRequest{Key: []byte(everything + "mine")}},
		call{etcdserverpb.KV_Compact_FullMethodName, &etcdserverpb.CompactionRequest{Revision: 2}},
		call{etcdserverpb.Auth_UserList_FullMethodName, &etcdserverpb.AuthUserListRequest{}},
	)
}

// readerAdministers changes the cluster as a user with the right to read everything.
func readerAdministers(ctx context.Context, a *attacker) error {
	conn, err := a.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	in, err := etcdserverpb.NewAuthClient(conn).Authenticate(ctx, &etcdserverpb.AuthenticateRequest{Name: ann, Password: password})
	if err != nil {
		return fmt.Errorf("log in as %s: %w", ann, err)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, in.GetToken())
	if _, err := etcdserverpb.NewKVClient(conn).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("/crowd/")}); err != nil {
		return fmt.Errorf("read as %s: %w", ann, err) // or the refusals would prove nothing
	}
	return a.forbidden(ctx,
		call{pb.AdminService_BumpLineage_FullMethodName, &pb.BumpLineageRequest{Lineage: 1, Reason: "to harm"}},
	)
}

// homeless watches keys of a shard without a serving node.
func homeless(ctx context.Context, a *attacker) error {
	const streams, each = 10, 1000
	return a.many(ctx, streams, func(ctx context.Context, _ int) error {
		conn, err := a.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		s, err := watch(ctx, conn, etcdAPI)
		if err != nil {
			return err
		}
		go a.countWatches(s)
		for range each {
			if err := s.SendMsg(raw(createRequest(etcdAPI, 0, everything, everythingEnd, 0))); err != nil {
				return err
			}
			a.did("requests", 1)
		}
		<-ctx.Done()
		return nil
	})
}

// crowdLease is a lease of the crowd, with a key that attackers may not write.
const crowdLease = 7777

// leases attaches keys to another client's lease, keeps it alive, and revokes it.
func leases(ctx context.Context, a *attacker) error {
	return a.forbidden(ctx,
		call{etcdserverpb.KV_Put_FullMethodName, &etcdserverpb.PutRequest{Key: []byte(everything + "mine"), Lease: crowdLease}},
		call{etcdserverpb.Lease_LeaseRevoke_FullMethodName, &etcdserverpb.LeaseRevokeRequest{ID: crowdLease}},
		call{etcdserverpb.Lease_LeaseTimeToLive_FullMethodName, &etcdserverpb.LeaseTimeToLiveRequest{ID: crowdLease, Keys: true}},
	)
}

// peers connects to the port of nodes with a certificate of their CA. A wildcard in the node's own
// certificate matches its name.
func peers(ctx context.Context, a *attacker) error {
	return a.many(ctx, 20, func(ctx context.Context, _ int) error {
		conn, err := grpc.NewClient("passthrough:///"+a.Peer, grpc.WithTransportCredentials(creds(a.tls)))
		if err != nil {
			return err
		}
		defer conn.Close()
		err = conn.Invoke(ctx, pb.CacheService_Get_FullMethodName, &pb.GetRequest{Key: []byte("/crowd/000000")}, &pb.GetResponse{})
		if status.Code(err) != codes.Unavailable && ctx.Err() == nil {
			a.got(fmt.Sprintf("the port of nodes answers: %v", err))
		}
		a.was("answers", err)
		return nil
	})
}
