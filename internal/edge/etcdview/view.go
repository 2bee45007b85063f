// Package etcdview presents etcd to the clients of its API at this node: its current
// revision, the headers of answers, and the read rights.
//
// Read [View] first. All methods may be called from any goroutine.
package etcdview

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Upstream is etcd behind the cache. All methods may be called from any
// goroutine.
type Upstream interface {
	// Identity returns etcd's cluster ID and the newest raft term seen; zeros
	// while they are unknown.
	Identity() (cluster, term uint64)
	// CheckRevision returns etcd's revision, from a linearizable read that begins after the call.
	// It fails with a *kv.CompactedError, whose Floor is etcd's compact revision, or a
	// *kv.FutureError if revision cannot be read at etcd. Callers share reads.
	CheckRevision(ctx context.Context, revision kv.Revision) (now kv.Revision, err error)
}

// EtcdAuth checks the read rights of callers while etcd's authentication is on. All methods may
// be called from any goroutine. Errors are etcd's own.
type EtcdAuth interface {
	// Caller returns the user of the call of ctx. Without authentication at etcd,
	// callers have no name and may read everything.
	Caller(ctx context.Context) (string, error)
	// MayRead fails unless the caller may read all of the range.
	MayRead(caller string, r kv.Range) error
	// Changed is closed when rights may have changed.
	Changed() <-chan struct{}
	// Refresh reads changed users and roles again, here and at the other nodes. It returns when
	// they are in effect, or when the read fails.
	Refresh(ctx context.Context)
}

// Config configures a View.
type Config struct {
	Router *router.Router
	Etcd   Upstream
	Guard  EtcdAuth // nil: no authentication
	// Access is the policy, which applies in addition to etcd's rights; nil: it allows everything.
	// Audit records refusals; nil: no audit.
	Access *authz.Authorizer
	Audit  *authz.Audit
	Self   shard.NodeID
}

// View is this node's knowledge of etcd. Create it with New.
type View struct {
	cfg Config
	// member is this node's ID as a member of the cluster.
	member uint64
	seen   atomic.Pointer[seen]
}

// seen is the newest revision of etcd seen in a lineage. Revisions of two lineages do not compare.
type seen struct {
	lineage  uint64
	revision atomic.Int64
}

// New returns a View.
func New(cfg Config) *View { return &View{cfg: cfg, member: MemberID(cfg.Self)} }

// The errors that end streams, equal to etcd's: every client of etcd then resumes on
// another node.
var (
	ErrStopped  = rpctypes.ErrGRPCStopped
	ErrNoLeader = rpctypes.ErrGRPCNoLeader
)

// WireHeader is Header for messages that are encoded by hand.
func (v *View) WireHeader(revision kv.Revision) wire.Header {
	cluster, term := v.cfg.Etcd.Identity()
	return wire.Header{Cluster: cluster, Member: v.member, Term: term, Revision: revision}
}

// Header returns the header of an answer at a revision. The member is this
// node.
func (v *View) Header(revision kv.Revision) *etcdserverpb.ResponseHeader {
	h := v.WireHeader(revision)
	return &etcdserverpb.ResponseHeader{
		ClusterId: h.Cluster, MemberId: h.Member, Revision: int64(h.Revision), RaftTerm: h.Term,
	}
}

// Permit returns the caller, or the reason why it may not read the range. An empty
// range reveals nothing: it requires only an authenticated caller.
func (v *View) Permit(ctx context.Context, rng kv.Range, empty bool) (caller string, err error) {
	if v.cfg.Guard == nil {
		return "", nil
	}
	if caller, err = v.cfg.Guard.Caller(v.cfg.Access.Forward(ctx)); err == nil && !empty {
		err = v.cfg.Guard.MayRead(caller, rng)
	}
	if wire.IsDenied(err) {
		v.cfg.Audit.Refused(ctx, caller, &kv.DeniedError{Detail: fmt.Sprintf("etcd's rights do not let %s read %v", caller, rng)})
	}
	return caller, err
}

// Caller returns the caller of ctx, by the policy.
func (v *View) Caller(ctx context.Context) (*authz.Caller, error) {
	c, err := v.cfg.Access.Caller(ctx)
	return c, wire.Status(err)
}

// IsAway reports whether err means that the client should use another node.
func IsAway(err error) bool {
	var away *kv.UnavailableError
	return errors.As(err, &away) || wire.IsUnavailable(err)
}

// Now returns etcd's revision, from a read that begins after the call.
func (v *View) Now(ctx context.Context) (kv.Revision, error) {
	lineage := v.cfg.Router.History().Lineage
	now, err := v.cfg.Router.Now(ctx)
	if err == nil {
		v.Saw(lineage, now)
	}
	return now, err
}

// checkRevision calls Upstream.CheckRevision and remembers the revision.
func (v *View) checkRevision(ctx context.Context, revision kv.Revision) (kv.Revision, error) {
	lineage := v.cfg.Router.History().Lineage
	now, err := v.cfg.Etcd.CheckRevision(ctx, revision)
	if err == nil {
		v.Saw(lineage, now)
	}
	return now, err
}

// Saw records that etcd has reached a revision of a lineage. It ignores lineages older than the newest one.
func (v *View) Saw(lineage uint64, revision kv.Revision) {
	s := v.seenIn(lineage)
	for s != nil {
		old := s.revision.Load()
		if int64(revision) <= old || s.revision.CompareAndSwap(old, int64(revision)) {
			return
		}
	}
}

// seenIn returns the revision seen in a lineage, as the newest lineage; nil: there is a newer one.
func (v *View) seenIn(lineage uint64) *seen {
	for {
		s := v.seen.Load()
		switch {
		case s != nil && s.lineage == lineage:
			return s
		case s != nil && s.lineage > lineage:
			return nil
		}
		v.seen.CompareAndSwap(s, &seen{lineage: lineage})
	}
}

// Newest returns the newest revision that this node knows, for headers. It may lag, as at an
// etcd member.
func (v *View) Newest() kv.Revision {
	newest := v.cfg.Router.Newest()
	if s := v.seenIn(v.cfg.Router.History().Lineage); s != nil {
		newest = max(newest, kv.Revision(s.revision.Load()))
	}
	return newest
}

// CheckRevision is Upstream.CheckRevision, except that a *kv.CompactedError has the newest compact
// revision as its Floor and is returned with etcd's current revision.
func (v *View) CheckRevision(ctx context.Context, revision kv.Revision) (now kv.Revision, err error) {
	now, err = v.checkRevision(ctx, revision)
	var compacted *kv.CompactedError
	if !errors.As(err, &compacted) {
		return now, err
	}
	// The known compact revision may be out of date: repeat until the client gets a revision that
	// it can read.
	for last := kv.Revision(0); compacted.Floor > last; {
		last = compacted.Floor
		var more error
		if now, more = v.checkRevision(ctx, last); more == nil {
			break
		}
		errors.As(more, &compacted)
	}
	return now, compacted
}

// InEtcdsWords converts an error of the policy into etcd's error.
func InEtcdsWords(err error) error {
	var denied *kv.DeniedError
	if errors.As(err, &denied) {
		return wire.Denied(denied.Detail)
	}
	return wire.Status(err)
}

// ClientOf returns the remote address of a call; nil: unknown.
func ClientOf(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

// MemberID returns the member ID of a node: a hash of its name, so that all nodes
// report the same ID.
func MemberID(name shard.NodeID) uint64 { return xxhash.Sum64String(string(name)) }

// WantsLeader reports whether the call requires a leader: it is refused or ended while
// there is none.
func WantsLeader(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	v := md.Get(rpctypes.MetadataRequireLeaderKey)
	return len(v) > 0 && v[0] == rpctypes.MetadataHasLeader
}
