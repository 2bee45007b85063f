package clienttest

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// Authenticate turns authentication on: only users, with their passwords, may
// read and write, and see the shard map and members. nil turns it off.
func (c *Cluster) Authenticate(users map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users, c.denied, c.tokens = users, map[string]bool{}, map[string]string{}
	c.broadcastLocked()
}

// Expire makes all tokens invalid.
func (c *Cluster) Expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.tokens)
}

// Deny takes all rights from a user.
func (c *Cluster) Deny(user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denied[user] = true
}

// Logins returns the number of logins.
func (c *Cluster) Logins() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.logins
}

// user returns whose token the caller has; "": authentication is off. It fails unless the
// caller has a token that is taken.
func (c *Cluster) user(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users == nil {
		return "", nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	user := c.tokens[strings.Join(md.Get(rpctypes.TokenFieldNameGRPC), "")]
	if user == "" {
		return "", errNoUser()
	}
	return user, nil
}

func errNoUser() error {
	return failure(codes.Unauthenticated, "UNAUTHENTICATED", "the token is invalid", nil)
}

// permit fails unless the caller has a token and rights.
func (c *Cluster) permit(ctx context.Context) error {
	user, err := c.user(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.denied[user] {
		return failure(codes.PermissionDenied, "DENIED", "no right", nil)
	}
	return nil
}

// ofCluster reports whether a method is about the cluster, and not about keys.
func ofCluster(method string) bool {
	return strings.Contains(method, pb.ClusterService_ServiceDesc.ServiceName) || strings.Contains(method, pb.AdminService_ServiceDesc.ServiceName)
}

func (c *Cluster) checkCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if strings.Contains(info.FullMethod, etcdserverpb.KV_ServiceDesc.ServiceName) {
		switch status.Code(c.permit(ctx)) { // in etcd's words
		case codes.Unauthenticated:
			return nil, rpctypes.ErrGRPCUserEmpty
		case codes.PermissionDenied:
			return nil, rpctypes.ErrGRPCPermissionDenied
		default:
		}
	}
	if strings.Contains(info.FullMethod, pb.CacheService_ServiceDesc.ServiceName) {
		if err := c.permit(ctx); err != nil {
			return nil, err
		}
	}
	if ofCluster(info.FullMethod) {
		if _, err := c.user(ctx); err != nil {
			return nil, err
		}
	}
	return handle(ctx, req)
}

func (c *Cluster) checkStream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod == pb.CacheService_List_FullMethodName {
		if err := c.permit(s.Context()); err != nil {
			return err
		}
	}
	if ofCluster(info.FullMethod) {
		if _, err := c.user(s.Context()); err != nil {
			return err
		}
	}
	return handle(srv, s)
}

type authServer struct {
	etcdserverpb.UnimplementedAuthServer
	c *Cluster
}

// Authenticate implements etcdserverpb.AuthServer.
func (s *authServer) Authenticate(_ context.Context, r *etcdserverpb.AuthenticateRequest) (*etcdserverpb.AuthenticateResponse, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.logins++
	switch password, ok := s.c.users[r.GetName()]; {
	case s.c.users == nil:
		return nil, rpctypes.ErrGRPCAuthNotEnabled
	case !ok || password != r.GetPassword():
		return nil, rpctypes.ErrGRPCAuthFailed
	}
	token := fmt.Sprintf("token %d", s.c.logins)
	s.c.tokens[token] = r.GetName()
	return &etcdserverpb.AuthenticateResponse{Token: token}, nil
}
