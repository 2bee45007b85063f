package server_test

import (
	"context"
	"strings"
	"testing"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// lineages records the arguments of BumpLineage.
type lineages struct {
	ended, accept uint64
	reason        string
}

func (l *lineages) BumpLineage(_ context.Context, ended uint64, reason string, accept uint64) (uint64, error) {
	if ended != 1 {
		return 0, &kv.LineageError{Requested: ended, Current: 1}
	}
	l.ended, l.reason, l.accept = ended, reason, accept
	return ended + 1, nil
}

func TestBumpLineage(t *testing.T) {
	h := cachetest.New()
	l := &lineages{}
	r := start(t, h, options{server: func(c *server.Config) { c.Lineage = l }})
	admin := pb.NewAdminServiceClient(r.conn)
	for _, c := range []struct {
		name string
		r    *pb.BumpLineageRequest
		want string
	}{
		{"no lineage", &pb.BumpLineageRequest{Reason: "r"}, "lineage: name the lineage"},
		{"no reason", &pb.BumpLineageRequest{Lineage: 1}, "reason: give a reason"},
		{"a long reason", &pb.BumpLineageRequest{Lineage: 1, Reason: strings.Repeat("r", 1025)}, "at most 1024 bytes"},
		{"no ID", &pb.BumpLineageRequest{Lineage: 1, Reason: "r", EtcdClusterId: "xyz"}, `"xyz" is not a cluster ID`},
		{"the ID of no cluster", &pb.BumpLineageRequest{Lineage: 1, Reason: "r", EtcdClusterId: "0"}, `"0" is not a cluster ID`},
		{"another lineage", &pb.BumpLineageRequest{Lineage: 7, Reason: "r"}, "belongs to lineage 7"},
	} {
		if _, err := admin.BumpLineage(t.Context(), c.r); err == nil || !strings.Contains(wire.Error(err).Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	got, err := admin.BumpLineage(t.Context(), &pb.BumpLineageRequest{Lineage: 1, Reason: "restored by hand", EtcdClusterId: "f0"})
	if err != nil || got.GetLineage() != 2 || *l != (lineages{ended: 1, accept: 0xf0, reason: "restored by hand"}) {
		t.Errorf("%v, %v, %+v", got, err, l)
	}
}
