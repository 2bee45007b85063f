package server_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// counter is a client's end of a connection that only counts the messages that it reads: a minimal
// HTTP/2 client with little cost.
type counter struct {
	head    []byte // of a frame
	left    int    // of the frame's payload
	data    bool   // the frame is DATA
	streams map[uint32]*countedStream
	stream  *countedStream
}

type countedStream struct {
	head []byte // of a message
	left int
}

// feed returns the number of messages that end in p.
func (c *counter) feed(p []byte) (messages int) {
	for len(p) > 0 {
		if c.left == 0 {
			n := min(9-len(c.head), len(p))
			c.head = append(c.head, p[:n]...)
			if p = p[n:]; len(c.head) < 9 {
				return messages
			}
			c.left, c.data = int(binary.BigEndian.Uint32(c.head)>>8), c.head[3] == byte(http2.FrameData)
			id := binary.BigEndian.Uint32(c.head[5:])
			if c.stream = c.streams[id]; c.stream == nil {
				c.stream = new(countedStream)
				c.streams[id] = c.stream
			}
			c.head = c.head[:0]
		}
		n := min(c.left, len(p))
		if c.data {
			messages += c.stream.feed(p[:n])
		}
		c.left -= n
		p = p[n:]
	}
	return messages
}

func (s *countedStream) feed(p []byte) (messages int) {
	for len(p) > 0 {
		if s.left == 0 {
			n := min(5-len(s.head), len(p))
			s.head = append(s.head, p[:n]...)
			if p = p[n:]; len(s.head) < 5 {
				return messages
			}
			s.left, s.head = int(binary.BigEndian.Uint32(s.head[1:])), s.head[:0]
		}
		n := min(s.left, len(p))
		p = p[n:]
		if s.left -= n; s.left == 0 {
			messages++
		}
	}
	return messages
}

// connectCounting connects a client with a watch of all keys on each of its streams. It calls heard
// with the number of messages that have arrived.
func connectCounting(b *testing.B, address string, streams int, secure *tls.Config, readers *sync.WaitGroup, heard func(messages int)) {
	b.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	if secure != nil {
		c = tls.Client(c, secure)
	}
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	f, enc := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	key, end := kv.Prefix("a").Etcd()
	request, err := proto.Marshal(&pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: &pb.CreateWatch{
		WatchId: 1, Key: key, RangeEnd: end, Start: &pb.CreateWatch_StartRevision{StartRevision: first},
	}}})
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}) // to a buffer, as all of these
	_ = f.WriteWindowUpdate(0, 1<<30)
	for i := range streams {
		block.Reset()
		for _, h := range [][2]string{
			{":method", "POST"},
			{":scheme", "http"},
			{":path", pb.CacheService_Watch_FullMethodName},
			{":authority", "x"},
			{"content-type", "application/grpc"},
			{"te", "trailers"},
		} {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		id := uint32(2*i + 1)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
		_ = f.WriteData(id, false, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...))
	}
	if err == nil {
		_, err = c.Write(out.Bytes())
	}
	if err != nil {
		b.Fatal(err)
	}
	readers.Go(func() {
		count, buf := &counter{streams: make(map[uint32]*countedStream)}, make([]byte, 16<<10)
		for {
			n, err := c.Read(buf)
			if m := count.feed(buf[:n]); m > 0 {
				heard(m)
			}
			if err != nil {
				return
			}
		}
	})
}

// BenchmarkConnections delivers events of 256 bytes to the watches of many connections, one on each
// stream. It measures the CPU time of node and clients per delivery; the clients' part is a read(2)
// and a count. With CACHENODE_CLIENT_SERVER=grpc-go it measures that server.
func BenchmarkConnections(b *testing.B) {
	for _, secure := range []bool{false, true} {
		for _, shape := range [][2]int{{1000, 1}, {10, 100}} {
			b.Run(fmt.Sprintf("tls=%v/connections=%d/streams=%d", secure, shape[0], shape[1]), func(b *testing.B) {
				benchmarkConnections(b, secure, shape[0], shape[1])
			})
		}
	}
}

func benchmarkConnections(b *testing.B, secure bool, connections, streams int) {
	var forClient *tls.Config
	var settings func(*server.Config)
	if secure {
		ca := certtest.NewCA(b, "ca")
		forServer := &tls.Config{Certificates: []tls.Certificate{ca.Issue(b, "server").Pair}, MinVersion: tls.VersionTLS13}
		forClient = &tls.Config{RootCAs: certtest.Pool(ca), ServerName: "localhost", MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
		settings = func(c *server.Config) { c.ClientTLS = forServer }
	}
	h := cachetest.New()
	r := start(b, h, options{server: settings, shards: cachetest.Map(1, nil, "here")})
	var left atomic.Int64
	done := make(chan struct{}, 1)
	var readers sync.WaitGroup
	b.Cleanup(readers.Wait)
	left.Store(int64(connections * streams)) // watches are created
	for range connections {
		connectCounting(b, r.clients, streams, forClient, &readers, func(messages int) {
			if left.Add(-int64(messages)) == 0 {
				done <- struct{}{}
			}
		})
	}
	<-done
	value := strings.Repeat("v", 256)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := used()
	for b.Loop() {
		left.Store(int64(connections * streams))
		h.Commit(cachetest.Put("a", value))
		<-done
	}
	spent := used() - began
	runtime.ReadMemStats(&after)
	n := float64(b.N * connections * streams)
	b.ReportMetric(0, "ns/op") // wall time of a busy machine means nothing
	b.ReportMetric(float64(spent)/n, "cpu-ns/delivery")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/delivery")
	b.ReportMetric(float64(runtime.NumGoroutine())/float64(connections*streams), "goroutines/stream")
}
