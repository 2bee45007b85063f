package server_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// recipients returns the number of watches that a message is for, from the IDs at its beginning.
func recipients(r io.ByteReader) int {
	tag, _ := binary.ReadUvarint(r)
	size, _ := binary.ReadUvarint(r)
	if field, _ := protowire.DecodeTag(tag); field == 1 {
		return 1
	}
	n := 0
	for range size {
		if b, _ := r.ReadByte(); b < 0x80 {
			n++
		}
	}
	return n
}

// countingIDs is a client's codec that decodes only the watch IDs of a message.
type countingIDs struct{}

func (countingIDs) Name() string { return "proto" }

func (countingIDs) Marshal(v any) (mem.BufferSlice, error) {
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (countingIDs) Unmarshal(data mem.BufferSlice, v any) error {
	r := data.Reader()
	defer func() { _ = r.Close() }()
	*v.(*int) = recipients(r)
	return nil
}

// used returns the CPU time of the process so far.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCrowd delivers events of 256 bytes to all watches of one stream, to each watch
// separately or to all together. An op is one event for each watch, or batch events that are
// written at once. The figures are those of the process, from the event source on. With to=client
// they include gRPC, loopback and a client that only counts; with to=nobody the encoded messages
// are dropped.
func BenchmarkCrowd(b *testing.B) {
	for _, to := range []string{"nobody", "client"} {
		for _, watches := range []int{100, 1000} {
			for _, batch := range []int{1, 32} {
				for _, fan := range []string{"each", "together"} {
					b.Run(fmt.Sprintf("to=%s/watches=%d/batch=%d/fan=%s", to, watches, batch, fan), func(b *testing.B) {
						benchmarkCrowd(b, to == "client", watches, batch, fan == "together")
					})
				}
			}
		}
	}
}

func benchmarkCrowd(b *testing.B, client bool, watches, batch int, together bool) {
	h := cachetest.New()
	r := start(b, h, options{shards: cachetest.Map(1, nil, "here")})
	var left, messages atomic.Int64
	done := make(chan struct{}, 1)
	told := func(watches int) { // called one at a time
		messages.Add(1)
		if left.Add(-int64(watches)) == 0 {
			done <- struct{}{}
		}
	}
	var send func(*pb.WatchRequest)
	if client {
		s, err := r.conn.NewStream(b.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, pb.CacheService_Watch_FullMethodName, grpc.ForceCodecV2(countingIDs{}))
		if err != nil {
			b.Fatal(err)
		}
		send = func(m *pb.WatchRequest) {
			if err := s.SendMsg(m); err != nil {
				b.Error(err)
			}
		}
		go func() {
			var n int
			for s.RecvMsg(&n) == nil { // ends with the stream
				told(n)
			}
		}()
	} else {
		p := &held{
			sent: func(e *wire.Encoded) { told(recipients(bytes.NewReader(e.Buffers[0].ReadOnlyData()))) },
			all:  func(any) { told(1) },
		}
		r.hand(p)
		send = func(m *pb.WatchRequest) { p.in <- m }
	}
	send(allowWatchIDs(together))
	left.Store(int64(watches))
	key, end := kv.Prefix("a").Etcd()
	for id := range int64(watches) {
		send(&pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: &pb.CreateWatch{
			WatchId: id + 1, Key: key, RangeEnd: end, Start: &pb.CreateWatch_StartRevision{StartRevision: first},
		}}})
	}
	<-done // all watches are created
	value := strings.Repeat("v", 256)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := used()
	messages.Store(0)
	for b.Loop() {
		left.Store(int64(batch * watches))
		for range batch {
			h.Commit(cachetest.Put("a", value))
		}
		<-done
	}
	spent := used() - began
	runtime.ReadMemStats(&after)
	n := float64(b.N * batch * watches)
	b.ReportMetric(0, "ns/op") // wall time of a busy machine means nothing
	b.ReportMetric(float64(spent)/n, "cpu-ns/delivery")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/delivery")
	b.ReportMetric(float64(messages.Load())/float64(b.N*batch), "messages/event")
}

// BenchmarkCrowdReplay creates 1,000 watches on a stream that start 5,000 events of 256 bytes in
// the past. An op ends when all of them have all events. The encoded messages are dropped.
func BenchmarkCrowdReplay(b *testing.B) {
	const watches, revisions = 1000, 5000
	for _, fan := range []string{"each", "together"} {
		b.Run("fan="+fan, func(b *testing.B) {
			h := cachetest.New()
			r := start(b, h, options{shards: cachetest.Map(1, nil, "here")})
			value := strings.Repeat("v", 256)
			for range revisions {
				h.Commit(cachetest.Put("a", value))
			}
			if err := r.node.Replica(1).WaitProgress(b.Context(), h.Now()); err != nil {
				b.Fatal(err)
			}
			var messages int64
			began := used()
			for b.Loop() {
				left, done := watches*revisions, make(chan struct{})
				p := &held{sent: func(e *wire.Encoded) { // called one at a time
					messages++
					if left -= recipients(bytes.NewReader(e.Buffers[0].ReadOnlyData())); left == 0 {
						close(done)
					}
				}}
				r.hand(p)
				p.in <- allowWatchIDs(fan == "together")
				key, end := kv.Prefix("a").Etcd()
				for id := range int64(watches) {
					p.in <- &pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: &pb.CreateWatch{
						WatchId: id + 1, Key: key, RangeEnd: end, Start: &pb.CreateWatch_StartRevision{StartRevision: first},
					}}}
				}
				<-done
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(used()-began)/float64(b.N*watches*revisions), "cpu-ns/delivery")
			b.ReportMetric(float64(messages)/float64(b.N*revisions), "messages/event")
		})
	}
}
