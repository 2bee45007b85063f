package clienttest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// accounts has the users of a cluster, their tokens and their rights.
type accounts struct {
	mu     sync.Mutex
	users  map[string]string // passwords; nil: authentication is off; guarded by mu
	denied map[string]bool   // users without rights; guarded by mu
	tokens map[string]string // the user of each token; guarded by mu
	logins int               // guarded by mu
}

// Authenticate turns authentication on: only these users, with their passwords, may
// read and write, and see the shard map and members. nil turns it off.
func (c *Cluster) Authenticate(users map[string]string) {
	c.accounts.mu.Lock()
	c.accounts.users, c.accounts.denied, c.accounts.tokens = users, map[string]bool{}, map[string]string{}
	c.accounts.mu.Unlock()
	c.broadcast()
}

// Expire makes all tokens invalid.
func (c *Cluster) Expire() {
	c.accounts.mu.Lock()
	defer c.accounts.mu.Unlock()
	clear(c.accounts.tokens)
}

// Deny takes all rights from a user.
func (c *Cluster) Deny(user string) {
	c.accounts.mu.Lock()
	defer c.accounts.mu.Unlock()
	c.accounts.denied[user] = true
}

// Logins returns the number of logins.
func (c *Cluster) Logins() int {
	c.accounts.mu.Lock()
	defer c.accounts.mu.Unlock()
	return c.accounts.logins
}

// removed reports whether a user that was logged in no longer exists.
func (a *accounts) removed(user string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.users[user]
	return a.users != nil && !known
}

// user returns the user of the caller's token; "": authentication is off. It fails if the
// token is missing or invalid.
func (a *accounts) user(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users == nil {
		return "", nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	user := a.tokens[strings.Join(md.Get(rpctypes.TokenFieldNameGRPC), "")]
	if user == "" {
		return "", errNoUser()
	}
	return user, nil
}

func errNoUser() error {
	return failure(codes.Unauthenticated, "UNAUTHENTICATED", "the token is invalid", nil)
}

// permit fails unless the caller has a token and rights.
func (a *accounts) permit(ctx context.Context) error {
	user, err := a.user(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.denied[user] {
		return failure(codes.PermissionDenied, "DENIED", "no right", nil)
	}
	return nil
}

// ofCluster reports whether a method concerns the cluster rather than keys.
func ofCluster(method string) bool {
	return strings.Contains(method, pb.ClusterService_ServiceDesc.ServiceName) || strings.Contains(method, pb.AdminService_ServiceDesc.ServiceName)
}

func (a *accounts) checkCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if strings.Contains(info.FullMethod, etcdserverpb.KV_ServiceDesc.ServiceName) {
		switch status.Code(a.permit(ctx)) { // with etcd's errors
		case codes.Unauthenticated:
			return nil, rpctypes.ErrGRPCUserEmpty
		case codes.PermissionDenied:
			return nil, rpctypes.ErrGRPCPermissionDenied
		default:
		}
	}
	if strings.Contains(info.FullMethod, pb.CacheService_ServiceDesc.ServiceName) {
		if err := a.permit(ctx); err != nil {
			return nil, err
		}
	}
	if ofCluster(info.FullMethod) {
		if _, err := a.user(ctx); err != nil {
			return nil, err
		}
	}
	return handle(ctx, req)
}

func (a *accounts) checkStream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod == pb.CacheService_List_FullMethodName {
		if err := a.permit(s.Context()); err != nil {
			return err
		}
	}
	if ofCluster(info.FullMethod) {
		if _, err := a.user(s.Context()); err != nil {
			return err
		}
	}
	return handle(srv, s)
}

type authServer struct {
	etcdserverpb.UnimplementedAuthServer
	a *accounts
}

// Authenticate implements etcdserverpb.AuthServer.
func (s *authServer) Authenticate(_ context.Context, r *etcdserverpb.AuthenticateRequest) (*etcdserverpb.AuthenticateResponse, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	s.a.logins++
	switch password, ok := s.a.users[r.GetName()]; {
	case s.a.users == nil:
		return nil, rpctypes.ErrGRPCAuthNotEnabled
	case !ok || password != r.GetPassword():
		return nil, rpctypes.ErrGRPCAuthFailed
	}
	token := fmt.Sprintf("token %d", s.a.logins)
	s.a.tokens[token] = r.GetName()
	return &etcdserverpb.AuthenticateResponse{Token: token}, nil
}
