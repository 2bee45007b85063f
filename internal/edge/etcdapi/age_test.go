package etcdapi_test

import (
	"errors"
	"io"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// ageOf returns the age in a header.
func ageOf(tb testing.TB, md metadata.MD) (age time.Duration, told bool) {
	tb.Helper()
	values := md.Get("shardwatch-age")
	if len(values) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || len(values) > 1 {
		tb.Fatalf("header %v", values)
	}
	return time.Duration(n) * time.Millisecond, true
}

// Serializable reads from memory report their maximum age; other reads do not.
func TestReadsReportTheirAge(t *testing.T) {
	began := time.Now()
	n, _ := startScripted(t, 100)
	for _, x := range []struct {
		name string
		r    *etcdserverpb.RangeRequest
		told bool
	}{
		{"serializable", &etcdserverpb.RangeRequest{Key: pods().Key, RangeEnd: pods().RangeEnd, Serializable: true}, true},
		{"of one key", &etcdserverpb.RangeRequest{Key: []byte("/registry/pods/000001"), Serializable: true}, true},
		{"linearizable", pods(), false},
	} {
		var md metadata.MD
		if _, err := n.kv.Range(within(t), x.r, grpc.Header(&md)); err != nil {
			t.Fatal(err)
		}
		if age, told := ageOf(t, md); told != x.told || age > time.Since(began) {
			t.Errorf("%s: %v, %v", x.name, age, told)
		}
		s, err := n.kv.RangeStream(within(t), x.r)
		if err != nil {
			t.Fatal(err)
		}
		if md, err = s.Header(); err != nil {
			t.Fatal(err)
		}
		if _, told := ageOf(t, md); told != x.told {
			t.Errorf("%s, in chunks: %v", x.name, md)
		}
		for err == nil {
			_, err = s.Recv()
		}
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
}
