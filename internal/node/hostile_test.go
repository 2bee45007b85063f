package node_test

import (
	"bytes"
	"runtime"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// dialRaw connects to a node without a client that looks at requests.
func (m *machine) dialRaw(creds credentials.TransportCredentials) *grpc.ClientConn {
	m.c.t.Helper()
	conn, err := grpc.NewClient(m.clients, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewCodec())))
	if err != nil {
		m.c.t.Fatal(err)
	}
	m.c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// inParts returns transactions within transactions, each operation in two parts.
func inParts(levels, size int) []byte {
	b := bytes.Repeat([]byte{0x12, 0}, size/2)
	for range levels {
		b = protowire.AppendBytes([]byte{0x12}, protowire.AppendBytes([]byte{0x22, 0, 0x22}, b))
	}
	return b
}

// A caller without any right cannot make a node spend a gigabyte on one transaction.
func TestNestedTransactionsCostTheirSize(t *testing.T) { // not parallel: it measures the process
	policed := startPoliced(t, policyHead+webMay)
	guarded, _ := startGuarded(t, 1)
	open := startCluster(t, 1, 1, shards(1, 1))
	open.ready()
	txn := inParts(1000, 1<<20)
	for name, conn := range map[string]*grpc.ClientConn{
		"without rights by the policy": policed.nodes[0].dialRaw(credentials.NewTLS(policed.tls(who{}))),
		"without a login at etcd":      guarded.nodes[0].dialRaw(insecure.NewCredentials()),
		"no rights are needed":         open.nodes[0].dialRaw(insecure.NewCredentials()),
	} {
		call := func(b []byte) error {
			return conn.Invoke(within(t), etcdserverpb.KV_Txn_FullMethodName, &wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(b)}}, new(wire.Encoded))
		}
		_ = call(nil) // connects
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := call(txn)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: taken", name)
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 64<<20 {
			t.Errorf("%s: a transaction of %d bytes costs %d: %v", name, len(txn), cost, err)
		}
	}
}
