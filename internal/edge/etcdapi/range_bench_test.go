package etcdapi_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// BenchmarkRange lists keys of 1 KiB through etcd's API, with concurrent clients,
// from a separate server process: it measures the CPU time per key and the peak
// memory of that process, and of etcd for comparison.
//
//	go test ./internal/edge/etcdapi -run '^$' -bench BenchmarkRange/ -benchtime 5x
func BenchmarkRange(b *testing.B) {
	for _, server := range []string{"cache", "etcd"} {
		for _, rpc := range []string{etcdserverpb.KV_Range_FullMethodName, etcdserverpb.KV_RangeStream_FullMethodName} {
			for _, keys := range []int{10_000, 100_000} {
				for _, concurrent := range []int{1, 10, 50} {
					_, name, _ := strings.Cut(rpc[1:], "/")
					b.Run(fmt.Sprintf("server=%s/rpc=%s/keys=%d/concurrent=%d", server, name, keys, concurrent), func(b *testing.B) {
						benchLists(b, server, rpc, keys, concurrent)
					})
				}
			}
		}
	}
}

func benchLists(b *testing.B, server, rpc string, keys, concurrent int) {
	start := startEtcdProcess
	if server == "cache" {
		start = startCacheProcess
	}
	address, pid := start(b, keys)
	clients := make([]*discarding, concurrent)
	for i := range clients {
		clients[i] = dialDiscarding(b, address)
	}
	r := pods()
	r.Serializable = true
	request, err := proto.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	idle := memory(b, pid, "VmRSS")
	// The startup does not count.
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		b.Fatal(err)
	}
	before := cpu(b, pid)
	for b.Loop() {
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() {
				if n, err := c.call(rpc, request); err != nil || n < int64(keys)*1000 {
					b.Errorf("%d bytes, %v", n, err)
				}
			})
		}
		wg.Wait()
	}
	listed := float64(b.N * concurrent * keys)
	b.ReportMetric(float64((cpu(b, pid)-before).Nanoseconds())/listed, "cpu-ns/key")
	b.ReportMetric(float64(idle)/(1<<20), "idle-MiB")
	b.ReportMetric(float64(memory(b, pid, "VmHWM"))/(1<<20), "peak-MiB")
}

// cpu returns the CPU time of a process.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory returns a value in bytes from the status of a process.
func memory(b *testing.B, pid int, field string) int64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	b.Fatalf("no %s", field)
	return 0
}

// benchServer is the variable that makes this test binary run as a cache node with that many keys.
const benchServer = "SHARDWATCH_BENCH_SERVER"

func startCacheProcess(b *testing.B, keys int) (address string, pid int) {
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestBenchServer$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", benchServer, keys))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line), cmd.Process.Pid
}

// TestBenchServer is the server process of BenchmarkRange.
func TestBenchServer(t *testing.T) {
	keys, err := strconv.Atoi(os.Getenv(benchServer))
	if err != nil {
		t.Skip("for BenchmarkRange")
	}
	n, _ := startScripted(t, keys, func(c *etcdapi.Config) { c.MaxStaleness = 0 })
	debug.FreeOSMemory()
	fmt.Println(n.addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func startEtcdProcess(b *testing.B, keys int) (address string, pid int) {
	p := etcdtest.StartProcess(b)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	put := etcdserverpb.NewKVClient(dialPlain(b, p.Endpoint()))
	value := []byte(strings.Repeat("v", 1000))
	for at := 0; at < keys; {
		txn := &etcdserverpb.TxnRequest{}
		for ; at < keys && len(txn.Success) < 100; at++ {
			txn.Success = append(txn.Success, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
				RequestPut: &etcdserverpb.PutRequest{Key: fmt.Appendf(nil, "/registry/pods/%06d", at), Value: value},
			}})
		}
		if _, err := put.Txn(ctx, txn); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Kill(); err != nil {
		b.Fatal(err)
	}
	if err := p.Start(ctx); err != nil {
		b.Fatal(err)
	}
	return p.Endpoint(), p.PID()
}

// discarding is a minimal HTTP/2 client for gRPC that discards all answers, so that the benchmark
// measures only the server.
type discarding struct {
	conn   net.Conn
	in     *bufio.Reader
	stream uint32
}

// Frames of HTTP/2 (RFC 9113, section 6).
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	frameGoAway       = 7
	frameWindowUpdate = 8

	flagEnd        = 1
	flagEndHeaders = 4

	maxWindow = 1<<31 - 1
)

func dialDiscarding(tb testing.TB, address string) *discarding {
	tb.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	c := &discarding{conn: conn, in: bufio.NewReaderSize(conn, 256<<10), stream: 1}
	b := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	b = frame(b, frameSettings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, maxWindow)) // of streams
	b = frame(b, frameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, maxWindow-(1<<16-1)))
	if _, err := conn.Write(b); err != nil {
		tb.Fatal(err)
	}
	return c
}

func frame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// call makes a call, and returns the size of the answer in bytes.
func (c *discarding) call(method string, request []byte) (answered int64, err error) {
	text := func(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }
	headers := []byte{0x83, 0x86}                  // POST, http
	headers = text(append(headers, 0x04), method)  // :path
	headers = text(append(headers, 0x01), "bench") // :authority
	for _, h := range [][2]string{{"content-type", "application/grpc"}, {"te", "trailers"}} {
		headers = text(text(append(headers, 0), h[0]), h[1])
	}
	b := frame(nil, frameHeaders, flagEndHeaders, c.stream, headers)
	message := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request)))
	b = frame(b, frameData, flagEnd, c.stream, append(message, request...))
	if _, err := c.conn.Write(b); err != nil {
		return 0, err
	}
	for {
		var head [9]byte
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return answered, err
		}
		n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if _, err := c.in.Discard(n); err != nil {
			return answered, err
		}
		switch stream := binary.BigEndian.Uint32(head[5:]); {
		case head[3] == frameGoAway, head[3] == frameReset && stream == c.stream:
			return answered, fmt.Errorf("the server sent a frame of type %d", head[3])
		case stream != c.stream:
		case head[3] == frameData:
			answered += int64(n)
		case head[3] == frameHeaders && head[4]&flagEnd != 0:
			c.stream += 2
			if answered > 0 { // extend the connection's window again
				_, err = c.conn.Write(frame(nil, frameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(answered))))
			}
			return answered, err
		}
	}
}

// BenchmarkGet measures a get of one key at the API, without gRPC and without the read
// of etcd's revision.
func BenchmarkGet(b *testing.B) {
	for _, serializable := range []bool{true, false} {
		b.Run(fmt.Sprintf("keys=100000/serializable=%v", serializable), func(b *testing.B) {
			n, _ := startScripted(b, 100_000, func(c *etcdapi.Config) { c.MaxStaleness = 0 })
			r := one("/registry/pods/012345")
			r.Serializable = serializable
			b.ReportAllocs()
			for b.Loop() {
				e, err := n.api.Range(b.Context(), r)
				if err != nil || e.Buffers.Len() < 1000 {
					b.Fatal(err)
				}
				e.Buffers.Free()
			}
		})
	}
}
