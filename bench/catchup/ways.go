package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// way is a way for a client to catch up.
type way struct {
	name  string
	tier  bool // through a cache node
	exact bool // it gets only the changes
	// come returns the revision of each key that the client has received; 0: deleted.
	come func(ctx context.Context, b *bench, conn *grpc.ClientConn) (map[string]int64, error)
}

// listWay is the baseline of the comparison.
const listWay = "etcd: list"

func ways() []way {
	return []way{
		{name: listWay, come: list},
		{name: "etcd: its log", exact: true, come: replay},
		{name: "cache nodes: changed keys", tier: true, exact: true, come: func(ctx context.Context, b *bench, conn *grpc.ClientConn) (map[string]int64, error) {
			return unit(ctx, b, conn, b.left+1, shardwatchv1.SyncKind_SYNC_KIND_DELTA)
		}},
		{name: "cache nodes: the whole state", tier: true, come: func(ctx context.Context, b *bench, conn *grpc.ClientConn) (map[string]int64, error) {
			return unit(ctx, b, conn, 1, shardwatchv1.SyncKind_SYNC_KIND_RESYNC)
		}},
	}
}

// counted counts the bytes read from a connection.
type counted struct {
	net.Conn
	bytes *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}

func dial(endpoint string, bytes *atomic.Int64) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			return counted{conn, bytes}, err
		}))
}

// list acts like a client of etcd whose revision is compacted: it lists, in pages of one revision.
func list(ctx context.Context, b *bench, conn *grpc.ClientConn) (map[string]int64, error) {
	out := make(map[string]int64)
	r := &etcdserverpb.RangeRequest{Key: []byte(prefix), RangeEnd: []byte("/registry/pods0"), Limit: int64(b.cfg.page)}
	for {
		page, err := etcdserverpb.NewKVClient(conn).Range(ctx, r)
		if err != nil {
			return nil, err
		}
		for _, item := range page.GetKvs() {
			out[string(item.GetKey())] = item.GetModRevision()
		}
		if !page.GetMore() {
			return out, nil
		}
		r.Key = append(page.GetKvs()[len(page.GetKvs())-1].GetKey(), 0)
		r.Revision = page.GetHeader().GetRevision()
	}
}

// replay acts like a client of etcd whose revision is not compacted.
func replay(ctx context.Context, b *bench, conn *grpc.ClientConn) (map[string]int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := etcdserverpb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{
		Key: []byte(prefix), RangeEnd: []byte("/registry/pods0"), StartRevision: b.left + 1,
	}}}); err != nil {
		return nil, err
	}
	out := make(map[string]int64)
	for at := int64(0); at < b.now; {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if m.GetCanceled() {
			return nil, fmt.Errorf("etcd has ended the watch: %v", m)
		}
		for _, e := range m.GetEvents() {
			at = e.GetKv().GetModRevision()
			out[string(e.GetKv().GetKey())] = at
			if e.GetType() == mvccpb.Event_DELETE {
				out[string(e.GetKv().GetKey())] = 0
			}
		}
	}
	return out, nil
}

// unit resumes a watch at a cache node from a revision below its window.
func unit(ctx context.Context, b *bench, conn *grpc.ClientConn, from int64, want shardwatchv1.SyncKind) (map[string]int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := shardwatchv1.NewCacheServiceClient(conn).Watch(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&shardwatchv1.WatchRequest{Request: &shardwatchv1.WatchRequest_Create{Create: &shardwatchv1.CreateWatch{
		WatchId: 1, Key: []byte(prefix), RangeEnd: []byte("/registry/pods0"), AllowSync: true,
		Start: &shardwatchv1.CreateWatch_StartRevision{StartRevision: from},
	}}}); err != nil {
		return nil, err
	}
	out := make(map[string]int64)
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if e := m.GetEnded(); e != nil {
			return nil, fmt.Errorf("the watch has ended: %v", e)
		}
		if len(m.GetEvents()) > 0 {
			return nil, errors.New("the window has all revisions: write more")
		}
		s := m.GetSync()
		if s == nil {
			continue
		}
		if s.GetBegin() {
			clear(out)
		}
		if s.GetKind() != want {
			return nil, fmt.Errorf("the unit is %v, not %v", s.GetKind(), want)
		}
		for _, item := range s.GetKvs() {
			out[string(item.GetKey())] = item.GetModRevision()
		}
		for _, key := range s.GetDeleted() {
			out[string(key)] = 0
		}
		if s.GetEnd() {
			if s.GetRevision() < b.now {
				return nil, fmt.Errorf("the unit ends at revision %d, before %d", s.GetRevision(), b.now)
			}
			return out, nil
		}
	}
}
