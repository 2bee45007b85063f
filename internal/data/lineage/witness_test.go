package lineage

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// Half of the nodes are not a majority: one of two nodes must not change the lineage of the other.
func TestMostIsMoreThanHalf(t *testing.T) {
	for _, test := range []struct {
		some, all int64
		want      bool
	}{{0, 0, false}, {1, 1, true}, {1, 2, false}, {2, 2, true}, {1, 3, false}, {2, 3, true}, {2, 4, false}, {3, 4, true}} {
		if got := most(test.some, test.all); got != test.want {
			t.Errorf("%d of %d is a majority: %v", test.some, test.all, got)
		}
	}
}

// A restore that one node has detected is certain if another node has detected it, too, or if no node denies it
// for a while. It stays open, however long, if a node that has read etcd since then denies it.
func TestConfirmationOfARestore(t *testing.T) {
	for _, test := range []struct {
		agree, deny int64
		doubted     time.Duration
		want        bool
	}{
		{0, 0, votePatience, false},
		{0, 0, votePatience + 1, true},
		{0, 1, time.Hour, false},
		{1, 0, 0, true},
		{1, 2, 0, true},
	} {
		if got := witnessed(test.agree, test.deny, test.doubted); got != test.want {
			t.Errorf("%+v: certain: %v", test, got)
		}
	}
	age := durationpb.New(time.Second)
	for name, test := range map[string]struct {
		status         *shardwatchv1.StatusResponse
		agrees, denies bool
	}{
		"it has found it, too":   {&shardwatchv1.StatusResponse{Lineage: 3, Refusal: "restored", EtcdAge: age}, true, false},
		"in another lineage":     {&shardwatchv1.StatusResponse{Lineage: 2, Refusal: "restored", EtcdAge: age}, false, false},
		"it has looked since":    {&shardwatchv1.StatusResponse{Lineage: 3, EtcdAge: age}, false, true},
		"but in another lineage": {&shardwatchv1.StatusResponse{Lineage: 4, EtcdAge: age}, false, false},
		"it looked before":       {&shardwatchv1.StatusResponse{Lineage: 3, EtcdAge: durationpb.New(2 * time.Second)}, false, false},
		"it has never looked":    {&shardwatchv1.StatusResponse{Lineage: 3}, false, false},
	} {
		if agrees, denies := stance(test.status, 3, 2*time.Second); agrees != test.agrees || denies != test.denies {
			t.Errorf("%s: agrees %v, denies %v", name, agrees, denies)
		}
	}
}
