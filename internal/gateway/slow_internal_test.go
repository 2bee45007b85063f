package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// A client that does not read an answer, or reads next to nothing of it, is cut. One that
// reads slowly has all of it.
func TestClientsThatDoNotReadAreCut(t *testing.T) {
	for name, c := range map[string]struct {
		read   int           // bytes at a time
		pause  time.Duration // before each
		served bool
	}{
		"nothing":       {0, time.Hour, false},
		"next to none":  {piece, pieceTimeout - time.Second, false},
		"slowly":        {2 * leastRate, time.Second, true},
		"after a while": {1 << 20, pieceTimeout - time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				answer := bytes.Repeat([]byte("x"), 1<<20)
				got := make(chan int)
				go func() {
					all := 0
					for all < len(answer) {
						time.Sleep(c.pause)
						n, err := io.ReadFull(client, make([]byte, c.read))
						all += n
						if err != nil || c.read == 0 {
							break
						}
					}
					got <- all
				}()
				n, err := (&web{Conn: server}).Write(answer)
				_ = server.Close()
				if c.served && (n != len(answer) || err != nil) || !c.served && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%d bytes: %v", n, err)
				}
				if read := <-got; c.served && read != len(answer) {
					t.Errorf("read %d bytes", read)
				}
			})
		})
	}
}

// inPieces cuts a message as gRPC may.
func inPieces(b []byte, size int) (out mem.BufferSlice) {
	for len(b) > 0 {
		n := min(size, len(b))
		out, b = append(out, mem.SliceBuffer(b[:n])), b[n:]
	}
	return out
}

// A list that is written key by key is the same as one that is written at once.
func FuzzWriteList(f *testing.F) {
	for _, m := range []*etcdserverpb.RangeResponse{
		{},
		{Count: 3},
		{Header: &etcdserverpb.ResponseHeader{Revision: 1 << 40, ClusterId: 1 << 63}},
		{Kvs: []*mvccpb.KeyValue{{Key: []byte("a"), Value: []byte("1"), ModRevision: 7}}},
		{Header: &etcdserverpb.ResponseHeader{RaftTerm: 2}, Kvs: []*mvccpb.KeyValue{{Key: []byte("a")}, {}, {Key: []byte("b"), Lease: -1}}, More: true, Count: 3},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 3)
		f.Add(slices.Concat(b, b), 5) // fields before the keys and after them
	}
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		var out bytes.Buffer
		written := writeList(&out, inPieces(b, max(1, size)), protojson.MarshalOptions{UseProtoNames: true})
		var want, got etcdserverpb.RangeResponse
		if err := proto.Unmarshal(b, &want); err != nil || written != nil {
			return // what cannot be read is not written
		}
		if err := protojson.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", out.Bytes(), err)
		}
		(&want).ProtoReflect().SetUnknown(nil)
		if want.Header != nil {
			want.Header.ProtoReflect().SetUnknown(nil)
		}
		for _, kv := range want.Kvs {
			kv.ProtoReflect().SetUnknown(nil)
		}
		if !proto.Equal(&want, &got) {
			t.Errorf("%s: want %v", out.Bytes(), &want)
		}
	})
}
