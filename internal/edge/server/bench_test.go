package server_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// counting is a client's codec that only counts messages, so that the benchmark measures the
// server.
type counting struct{}

type counted struct{ bytes int }

func (counting) Name() string { return "proto" }

func (counting) Marshal(v any) (mem.BufferSlice, error) {
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (counting) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*counted).bytes = data.Len()
	return nil
}

const (
	benchWatches = 1000
	benchStreams = 4
	benchValue   = 256
)

// plain delivers in the most direct way, for comparison: with a goroutine for each stream, and each
// watch's response marshalled separately.
type plain struct {
	pb.UnimplementedCacheServiceServer
	feeds chan chan *pb.Event
}

func (p *plain) Watch(s grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	for range benchWatches / benchStreams {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if err := s.Send(&pb.WatchResponse{WatchId: m.GetCreate().GetWatchId(), Detail: &pb.WatchResponse_Created{Created: &pb.Created{}}}); err != nil {
			return err
		}
	}
	feed := make(chan *pb.Event, 1024)
	p.feeds <- feed
	for {
		select {
		case <-s.Context().Done():
			return nil
		case e := <-feed:
			for id := range int64(benchWatches / benchStreams) {
				if err := s.Send(&pb.WatchResponse{WatchId: id + 1, Revision: e.GetKv().GetModRevision(), Events: []*pb.Event{e}}); err != nil {
					return err
				}
			}
		}
	}
}

// BenchmarkDeliver delivers one event of 256 bytes to each of 1,000 watches on four streams of one
// connection over loopback. It includes the client except for its decoding; an op is one delivery.
// batch is the number of events written before all have arrived.
func BenchmarkDeliver(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(fmt.Sprintf("server=pump/batch=%d", batch), func(b *testing.B) {
			h := cachetest.New()
			r := start(b, h, options{})
			value := strings.Repeat("v", benchValue)
			deliver(b, r.conn, batch, func() { h.Commit(cachetest.Put("a", value)) })
		})
		b.Run(fmt.Sprintf("server=plain/batch=%d", batch), func(b *testing.B) {
			p := &plain{feeds: make(chan chan *pb.Event, benchStreams)}
			g := grpc.NewServer()
			pb.RegisterCacheServiceServer(g, p)
			l := listen(b)
			var wg sync.WaitGroup
			wg.Go(func() { _ = g.Serve(l) }) // ends with Stop
			defer wg.Wait()
			defer g.Stop()
			var feeds []chan *pb.Event
			at := int64(0)
			deliver(b, dial(b, l.Addr().String()), batch, func() {
				for len(feeds) < benchStreams {
					feeds = append(feeds, <-p.feeds)
				}
				at++
				e := &pb.Event{Kv: &pb.KeyValue{Key: []byte("a"), Value: []byte(strings.Repeat("v", benchValue)), ModRevision: at, CreateRevision: at, Version: 1}}
				for _, f := range feeds {
					f <- e
				}
			})
		})
	}
}

func deliver(b *testing.B, conn *grpc.ClientConn, batch int, write func()) {
	var readers sync.WaitGroup
	due := make([]chan int, benchStreams)
	var arrived sync.WaitGroup
	for i := range due {
		due[i] = make(chan int, 1)
		s, err := conn.NewStream(b.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, pb.CacheService_Watch_FullMethodName, grpc.ForceCodecV2(counting{}))
		if err != nil {
			b.Fatal(err)
		}
		var m counted
		for id := range int64(benchWatches / benchStreams) {
			key, end := kv.Prefix("a").Etcd()
			c := &pb.CreateWatch{WatchId: id + 1, Key: key, RangeEnd: end, Start: &pb.CreateWatch_StartRevision{StartRevision: first}}
			if err := s.SendMsg(&pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: c}}); err != nil {
				b.Fatal(err)
			}
			if err := s.RecvMsg(&m); err != nil { // Created
				b.Fatal(err)
			}
		}
		readers.Go(func() {
			for n := range due[i] {
				for range n {
					if err := s.RecvMsg(&m); err != nil || m.bytes < benchValue {
						b.Error(err, m.bytes)
						break
					}
				}
				arrived.Done()
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += batch * benchWatches { // b.Loop counts rounds, not deliveries
		arrived.Add(benchStreams)
		for _, d := range due {
			d <- batch * benchWatches / benchStreams
		}
		for range batch {
			write()
		}
		arrived.Wait()
	}
	b.StopTimer()
	for _, d := range due {
		close(d)
	}
	readers.Wait()
}
