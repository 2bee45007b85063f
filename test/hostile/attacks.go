package hostile

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// control is a run without an attack, machineControl an attack on the machine, and etcdControl an
// attack on etcd that no node can prevent.
const (
	control        = "none"
	machineControl = "machine"
	etcdControl    = "etcd-catch-up"
)

// The names of APIs.
const (
	etcdAPI   = "etcd"
	nativeAPI = "native"
	jsonAPI   = "JSON"
	http2API  = "HTTP/2"
	httpAPI   = "HTTP port"
	peerAPI   = "peer port"
)

// Attacks returns all attacks.
func Attacks() []Attack {
	return []Attack{
		{control, "no attack at all: the cost of the measurement itself", "", stranger, func(ctx context.Context, _ *attacker) error {
			<-ctx.Done()
			return nil
		}},
		{machineControl, "TLS over loopback in the attacker's own process: the cost of any program on this machine", "", stranger, machine},
		{etcdControl, "one watch of everything since the beginning at etcd itself: no node can prevent it", etcdAPI, stranger, catchUpAtEtcd},
		{"nested-txn", "transactions of 1 MiB, nested 1,000 deep, without a right to anything", etcdAPI, nameless, nestedTxn},
		{"catch-up", "3,000 watches of everything since the beginning on one stream that is not read", etcdAPI, reader, catchUp(etcdAPI)},
		{"catch-up-native", "the same through the native API", nativeAPI, reader, catchUp(nativeAPI)},
		{"catch-up-keys", "watches of 100 other keys since the beginning per second, which are read: each makes etcd read all of its log", etcdAPI, reader, catchUpKeys},
		{"long-keys", "watches on keys of 1.9 MiB, 600 at a time", etcdAPI, reader, longKeys},
		{"create-cancel", "10,000 watches created and cancelled per second", etcdAPI, reader, createCancel(everything, everythingEnd)},
		{"refused-creates", "10,000 watches per second that the caller has no right to, and cancels of watches that do not exist", etcdAPI, nameless, createCancel("/forbidden/", "/forbidden0")},
		{"gzip-watches", "500 watches of all that is written on 10 connections, by a client that compresses its requests", etcdAPI, reader, gzipWatches},
		{"lists", "lists of everything, 50 at a time, which are read", etcdAPI, reader, list(etcdAPI).read(50)},
		{"lists-unread", "lists of everything, 500 streams that are not read", etcdAPI, reader, list(etcdAPI).unread},
		{"lists-unread-native", "the same through the native API", nativeAPI, reader, list(nativeAPI).unread},
		{"lists-keys-unread-native", "lists of all keys without values through the native API, 500 streams that are not read", nativeAPI, reader, listKeys().unread},
		{"lists-old-unread", "lists of everything at a revision that only etcd has, 500 streams that are not read", etcdAPI, reader, streamOld().unread},
		{"lists-sorted", "lists of the key that was written last, 1,000 at a time, which are read", etcdAPI, reader, listNewest().read(1000)},
		{"watches-map", "500 watches of the shard map with keys of 1.9 MiB", nativeAPI, reader, watchMaps},
		{"watches-unread", "1,000 watches of all that is written, on streams that are not read", etcdAPI, reader, unreadWatches(10, 100)},
		{"watches-connections", "watches of all that is written on 900 connections, one each, that are not read", etcdAPI, reader, unreadWatches(900, 1)},
		{"watches-many", "quiet watches, as many as the node takes", etcdAPI, reader, manyWatches},
		{"refusals", "lists with keys of 900 KiB that are refused, 8 at a time", etcdAPI, nameless, refusals},
		{"health-watches", "5,000 watches of the node's health", "gRPC", nameless, healthWatches},
		{"administers", "calls for administrators only: alarms, compactions, users, lineages", etcdAPI, reader, administer},
		{"unauthenticated", "calls that etcd allows its users, without a token, at an etcd with authentication that takes the node's certificate for root's", etcdAPI, operator, unauthenticated},
		{"reader-administers", "lineages, by a user of etcd's with the right to read everything and without root", nativeAPI, operator, readerAdministers},
		{"homeless", "10,000 watches of keys whose node is gone", etcdAPI, reader, homeless},
		{"drain-unread", "1,000 watches on streams that are not read, at a draining node", "both", reader, unreadWindows},
		{"leases", "another client's lease: to attach keys, to end it, to list its keys", etcdAPI, writer, leases},
		{"peers", "the port of nodes, with a certificate that a wildcard in theirs matches", peerAPI, sibling, peers},

		{"json-lists-unread", "50 lists of everything that are not read", jsonAPI, reader, jsonUnread(50, "/v3/kv/range", rangeJSON())},
		{"json-watches-unread", "500 watches of all that is written, not read", jsonAPI, reader, jsonUnread(500, "/v3/watch", watchJSON(0))},
		{"json-catch-up", "200 watches of everything since the beginning, not read", jsonAPI, reader, jsonUnread(200, "/v3/watch", watchJSON(2))},
		{"json-compares", "transactions of 1.4 million comparisons in 4 MiB, 20 at a time", jsonAPI, nameless, jsonFlood(20, "/v3/kv/txn", emptyCompares())},
		{"json-nested", "transactions nested 3,300 deep, 20 at a time", jsonAPI, nameless, jsonFlood(20, "/v3/kv/txn", nestedJSON(3300))},
		{"json-endless", "200 requests whose bodies never end", jsonAPI, nameless, jsonEndless},
		{"json-pages", "writes by pages of another origin, also under a name that was made to lead to the node", jsonAPI, writer, pages},
		{"json-slow-loris", "600 connections that send a header byte by byte", jsonAPI, nameless, slowHTTP(clientPort)},

		{"slow-loris", "100 streams on each of 20 connections that send a request byte by byte", http2API, nameless, floods(20, slowStream)},
		{"requests-unfinished", "10,000 requests of 2 MiB on 4 connections that are not sent to their end", http2API, nameless, floods(4, unfinished)},
		{"rapid-reset", "streams that are reset at once, on 4 connections (CVE-2023-44487)", http2API, nameless, floods(4, rapidReset)},
		{"settings-flood", "settings whose acknowledgements are not read, on 20 connections", http2API, nameless, floods(20, settingsFlood)},
		{"ping-flood", "pings that are not read, on 20 connections", http2API, nameless, floods(20, pingFlood)},
		{"continuation-flood", "headers without an end, on 20 connections (CVE-2023-45288)", http2API, nameless, floods(20, continuationFlood)},
		{"gzip-bombs", "requests of 32 KiB that decompress to 32 MiB, on 8 connections", http2API, nameless, floods(8, gzipBombs)},
		{"half-open", "5,000 connections a second that end in their handshake", http2API, stranger, halfOpen},
		{"connections", "10,000 connections without a call", http2API, nameless, connections(10_000)},
		{"streams-idle", "50,000 streams without a watch, on 5 connections", http2API, reader, idleStreams},

		{"probes-held", "600 connections to /healthz that are kept open", httpAPI, stranger, held(600, "/healthz", true)},
		{"probes-unread", "600 connections that ask for /healthz and read no answer", httpAPI, stranger, held(600, "/healthz", false)},
		{"metrics-unread", "100 connections that ask for /metrics and read no answer", httpAPI, nameless, held(100, "/metrics", false)},
		{"http-slow-loris", "600 connections that send a header byte by byte", httpAPI, stranger, slowHTTP(httpPort)},
	}
}

// everything is the range of keys that a reader may read.
const (
	everything    = "/data/"
	everythingEnd = "/data0"
)

// encoded returns an encoded message of the API.
func encoded(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err) // only for the package's own messages
	}
	return b
}

func raw(b []byte) *wire.Encoded { return &wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(b)}} }

// nestedTxn sends nested transactions, each operation in two parts.
func nestedTxn(ctx context.Context, a *attacker) error {
	b := nested(1000, 1<<20)
	conn, err := a.dial()
	if err != nil {
		return err
	}
	return a.many(ctx, 4, func(ctx context.Context, _ int) error {
		err := conn.Invoke(ctx, etcdserverpb.KV_Txn_FullMethodName, raw(b), new(wire.Encoded))
		a.was("transactions", err)
		return nil
	})
}

// nested returns a transaction of about size bytes within the given number of transactions. Each is
// an operation in two parts: an empty one and the next level.
func nested(levels, size int) []byte {
	var heads [][]byte // innermost first
	n := size
	for range levels {
		op := protowire.AppendVarint([]byte{0x22, 0, 0x22}, uint64(n))
		n += len(op)
		head := append(protowire.AppendVarint([]byte{0x12}, uint64(n)), op...)
		n += len(head) - len(op)
		heads = append(heads, head)
	}
	slices.Reverse(heads)
	return append(bytes.Join(heads, nil), bytes.Repeat([]byte{0x12, 0}, size/2)...)
}

// createRequest creates a watch through an API.
func createRequest(api string, id int64, key, end string, from int64) []byte {
	if api == nativeAPI {
		return encoded(&pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: &pb.CreateWatch{
			WatchId: id, Key: []byte(key), RangeEnd: []byte(end), Start: &pb.CreateWatch_StartRevision{StartRevision: from},
		}}})
	}
	return encoded(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{
		WatchId: id, Key: []byte(key), RangeEnd: []byte(end), StartRevision: from,
	}}})
}

// watch opens a watch stream.
func watch(ctx context.Context, conn *grpc.ClientConn, api string) (grpc.ClientStream, error) {
	method := etcdserverpb.Watch_Watch_FullMethodName
	if api == nativeAPI {
		method = pb.CacheService_Watch_FullMethodName
	}
	return conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
}

// catchUp creates watches with start revisions below every window, and does not read them.
func catchUp(api string) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		conn, err := a.dial()
		if err != nil {
			return err
		}
		s, err := watch(ctx, conn, api)
		if err != nil {
			return err
		}
		for id := range int64(3000) {
			if err := s.SendMsg(raw(createRequest(api, id+1, everything, everythingEnd, 2))); err != nil {
				return nil //nolint:nilerr // the node ended the stream, as it may
			}
			a.did("watches", 1)
		}
		<-ctx.Done()
		return nil
	}
}

// catchUpKeys continuously watches other keys, so that an earlier read of etcd's log does not serve them.
// It reads the few answers.
func catchUpKeys(ctx context.Context, a *attacker) error {
	conn, err := a.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := watch(ctx, conn, etcdAPI)
	if err != nil {
		return err
	}
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() { a.countWatches(s) })
	often := time.NewTicker(10 * time.Millisecond)
	defer often.Stop()
	for id := int64(1); ; id++ {
		key := fmt.Sprintf("%s%08d", everything, id)
		if err := s.SendMsg(raw(createRequest(etcdAPI, id, key, key+"\x00", 2))); err != nil {
			return nil // the node may end the stream
		}
		select {
		case <-ctx.Done():
			return nil
		case <-often.C:
		}
	}
}

// catchUpAtEtcd is the minimum of catchUp, without a node: one watch, which is read.
func catchUpAtEtcd(ctx context.Context, a *attacker) error {
	conn, err := grpc.NewClient("passthrough:///"+a.Etcd, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewCodec()), grpc.MaxCallRecvMsgSize(1<<31-1)))
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := watch(ctx, conn, etcdAPI)
	if err != nil {
		return err
	}
	if err := s.SendMsg(raw(createRequest(etcdAPI, 1, everything, everythingEnd, 2))); err != nil {
		return err
	}
	a.countWatches(s)
	return nil
}

// longKeys keeps watches on long keys open, as many as the node accepts.
func longKeys(ctx context.Context, a *attacker) error {
	const watches, size = 600, 19 << 20 / 10
	return a.onStreams(ctx, 6, func(ctx context.Context, i int, s grpc.ClientStream) error {
		for n := range watches / 6 {
			key := everything + strings.Repeat("k", size) + fmt.Sprintf("%d-%d", i, n)
			if err := s.SendMsg(raw(createRequest(etcdAPI, 0, key, "", 0))); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	})
}

// onStreams runs attack concurrently on the given number of Watch streams of etcd's API, each on a separate
// connection. The answers are read and counted.
func (a *attacker) onStreams(ctx context.Context, streams int, attack func(ctx context.Context, i int, s grpc.ClientStream) error) error {
	return a.many(ctx, streams, func(ctx context.Context, i int) error {
		conn, err := a.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := watch(ctx, conn, etcdAPI)
		if err != nil {
			return err
		}
		go a.countWatches(s)
		return attack(ctx, i, s)
	})
}

// createCancel creates 10,000 watches of the range per second and cancels each at once.
func createCancel(key, end string) func(context.Context, *attacker) error {
	const streams, rate = 10, 10_000
	return func(ctx context.Context, a *attacker) error {
		return a.onStreams(ctx, streams, func(ctx context.Context, _ int, s grpc.ClientStream) error {
			return each(ctx, rate/streams, func(n int64) error {
				cancel := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: n + 1}}}
				if err := s.SendMsg(raw(createRequest(etcdAPI, n+1, key, end, 0))); err != nil {
					return err
				}
				return s.SendMsg(raw(encoded(cancel)))
			})
		})
	}
}

// gzipWatches watches the keys of the crowd's writer with compressed requests, so that a server may
// compress its answers.
func gzipWatches(ctx context.Context, a *attacker) error {
	const conns, streams = 10, 50
	return a.many(ctx, conns, func(ctx context.Context, _ int) error {
		conn, err := a.dial(grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
		if err != nil {
			return err
		}
		defer conn.Close()
		var g errgroup.Group
		for range streams {
			g.Go(func() error {
				s, err := watch(ctx, conn, etcdAPI)
				if err != nil {
					return err
				}
				if err := s.SendMsg(raw(createRequest(etcdAPI, 0, "/crowd/", "/crowd0", 0))); err != nil {
					return err
				}
				a.countWatches(s)
				return nil
			})
		}
		return g.Wait()
	})
}

// oneCall is a call with one request.
type oneCall struct {
	method  string
	request proto.Message
}

// list lists everything through an API.
func list(api string) oneCall {
	if api == nativeAPI {
		return oneCall{pb.CacheService_List_FullMethodName, &pb.ListRequest{Key: []byte(everything), RangeEnd: []byte(everythingEnd)}}
	}
	return oneCall{etcdserverpb.KV_Range_FullMethodName, &etcdserverpb.RangeRequest{Key: []byte(everything), RangeEnd: []byte(everythingEnd)}}
}

// listNewest lists the most recently written key: the node sorts all keys for it.
func listNewest() oneCall {
	return oneCall{etcdserverpb.KV_Range_FullMethodName, &etcdserverpb.RangeRequest{
		Key: []byte(everything), RangeEnd: []byte(everythingEnd), Limit: 1,
		SortTarget: etcdserverpb.RangeRequest_MOD, SortOrder: etcdserverpb.RangeRequest_DESCEND,
	}}
}

// listKeys lists all keys without values: the node copies them.
func listKeys() oneCall {
	return oneCall{pb.CacheService_List_FullMethodName, &pb.ListRequest{Key: []byte(everything), RangeEnd: []byte(everythingEnd), KeysOnly: true}}
}

// streamOld lists everything at a revision that only etcd has.
func streamOld() oneCall {
	return oneCall{etcdserverpb.KV_RangeStream_FullMethodName, &etcdserverpb.RangeRequest{Key: []byte(everything), RangeEnd: []byte(everythingEnd), Revision: 10_000}}
}

// read makes the given number of calls concurrently and reads their answers.
func (c oneCall) read(calls int) func(context.Context, *attacker) error {
	request := encoded(c.request)
	return func(ctx context.Context, a *attacker) error {
		conn, err := a.dial()
		if err != nil {
			return err
		}
		return a.many(ctx, calls, func(ctx context.Context, _ int) error {
			var answer wire.Encoded
			err := conn.Invoke(ctx, c.method, raw(request), &answer)
			answer.Buffers.Free()
			a.was("lists", err)
			return nil
		})
	}
}

// unread makes 500 calls on 5 connections and reads no answer. Their streams stay open: the node may
// send each answer completely.
func (c oneCall) unread(ctx context.Context, a *attacker) error {
	request := encoded(c.request)
	return a.many(ctx, 5, func(ctx context.Context, _ int) error {
		h, err := a.h2(ctx)
		if err != nil {
			return err
		}
		defer h.conn.Close()
		for range 100 {
			h.call(c.method, request, false)
		}
		if err := h.send(); err != nil {
			return err
		}
		a.did("calls", 100)
		<-ctx.Done()
		return nil
	})
}

// watchMaps watches the shard of a key of 1.9 MiB 500 times, as far as the node permits.
func watchMaps(ctx context.Context, a *attacker) error {
	const conns, streams = 5, 100
	request := encoded(&pb.WatchShardMapRequest{Ranges: []*pb.KeyRange{{Key: []byte(everything + strings.Repeat("k", 19<<20/10))}}})
	return a.many(ctx, conns, func(ctx context.Context, _ int) error {
		conn, err := a.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		for range streams {
			s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, pb.ClusterService_WatchShardMap_FullMethodName)
			if err == nil {
				err = s.SendMsg(raw(request))
			}
			if err == nil {
				err = s.CloseSend()
			}
			if err == nil {
				var first wire.Encoded
				err = s.RecvMsg(&first)
				first.Buffers.Free()
			}
			a.was("watches", err)
		}
		<-ctx.Done()
		return nil
	})
}
