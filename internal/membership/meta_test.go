package membership

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/shard"
)

const (
	uuidA = "0f8fad5b-d9cb-469f-a165-70867728950e"
	uuidB = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
)

func TestMetaRoundTrip(t *testing.T) {
	started := time.UnixMilli(1700000000123)
	for name, m := range map[string]meta{
		"nothing": {},
		"all": {Member: shard.Member{
			UUID: uuidA, ClientAddress: "a.example:7400", PeerAddress: "10.0.0.1:7401", RaftAddress: "b.example:7402",
			HTTPAddress: "a.example:7480", Zone: "z1", Version: "v1.2.3", ClusterID: uuidB, BootstrapExpect: 3, Draining: true, Voter: true, Level: 7, Weight: 9,
		}, started: started},
		"odd IDs": {Member: shard.Member{UUID: "sixteen-bytes-id", ClusterID: strings.ToUpper(uuidB)}},
		"IPv6":    {Member: shard.Member{UUID: uuidA, ClientAddress: "[fd00::1]:7400"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := encodeMeta(m, "10.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeMeta(b, "10.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			if got.Member != m.Member || !got.started.Equal(m.started) {
				t.Errorf("got  %+v\nwant %+v", got, m)
			}
		})
	}
}

func TestMetaAddressWithoutHostGetsThatOfGossip(t *testing.T) {
	b, err := encodeMeta(meta{Member: shard.Member{ClientAddress: ":7400", PeerAddress: "0.0.0.0:7401", RaftAddress: "[::]:7402"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeMeta(b, "fd00::7")
	if err != nil {
		t.Fatal(err)
	}
	if got.ClientAddress != "[fd00::7]:7400" || got.PeerAddress != "[fd00::7]:7401" || got.RaftAddress != "[fd00::7]:7402" {
		t.Errorf("got %+v", got)
	}
}

func TestMetaLongestNamesFitOrAreRefused(t *testing.T) {
	label := strings.Repeat("x", 63)
	fqdn := label + "." + label + "." + label + ".svc.cluster.local"
	self := shard.Member{
		Name: shard.NodeID(label), UUID: uuidA, Zone: label, Version: "v10.20.30-0.20260101123456-abcdef123456",
		ClientAddress: fqdn + ":7400", PeerAddress: fqdn + ":7401", RaftAddress: fqdn + ":7402", HTTPAddress: fqdn + ":7480",
		BootstrapExpect: 5,
	}
	if err := checkMeta(self); err != nil {
		t.Errorf("one host of %d bytes: %v", len(fqdn), err)
	}
	ip6 := "[2001:db8:1111:2222:3333:4444:5555:6666]"
	self.RaftAddress, self.HTTPAddress = ip6+":7402", ip6+":7480"
	if err := checkMeta(self); err != nil {
		t.Errorf("a long host and an IPv6 address: %v", err)
	}
	self.PeerAddress = "y" + fqdn[1:] + ":7401"
	cfg := Defaults()
	cfg.Self = self
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "gossip carries 512") {
		t.Errorf("two long hosts: got %v, want a refusal that names the limit", err)
	}
}

func TestMetaSkipsUnknownFields(t *testing.T) {
	b, err := encodeMeta(meta{Member: shard.Member{UUID: uuidA}}, "")
	if err != nil {
		t.Fatal(err)
	}
	b = protowire.AppendTag(b, 100, protowire.BytesType)
	b = protowire.AppendString(b, "from the future")
	b = protowire.AppendTag(b, 101, protowire.VarintType)
	b = protowire.AppendVarint(b, 7)
	b = protowire.AppendTag(b, 102, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, 7)
	b = protowire.AppendTag(b, metaZone, protowire.BytesType)
	b = protowire.AppendString(b, "z1")
	got, err := decodeMeta(b, "")
	if err != nil || got.UUID != uuidA || got.Zone != "z1" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestMetaRefusesNonsense(t *testing.T) {
	for _, b := range []string{"", "\x00", "\x02", "\x01\x0a", "\x01\x0a\xff", "\x01\x18\x81\x80\x04" /* host 1 of 0 */} {
		if got, err := decodeMeta([]byte(b), ""); !errors.Is(err, errMeta) {
			t.Errorf("%q: got %+v, %v", b, got, err)
		}
	}
}

func FuzzMeta(f *testing.F) {
	full, err := encodeMeta(meta{Member: shard.Member{
		UUID: uuidA, ClientAddress: "a:1", PeerAddress: "b:2", RaftAddress: ":3", HTTPAddress: "a:4", Zone: "z", ClusterID: "c", BootstrapExpect: 3, Draining: true, Voter: true, Level: 7, Weight: 9,
	}, started: time.UnixMilli(5)}, "")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		b := append([]byte(nil), full...)
		b[rng.IntN(len(b))] ^= byte(1 << rng.IntN(8))
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b, "10.0.0.1")
		if err != nil {
			if !errors.Is(err, errMeta) {
				t.Fatalf("unexpected error: %v", err)
			}
			return
		}
		again, err := encodeMeta(m, "10.0.0.1")
		if err != nil || len(b) > memberlist.MetaMaxSize {
			return // invalid hosts, or too large
		}
		back, err := decodeMeta(again, "10.0.0.1")
		if err != nil {
			t.Fatalf("decoded metadata cannot be encoded and decoded again: %v", err)
		}
		if back.Member != m.Member {
			t.Fatalf("got  %+v\nwant %+v", back, m)
		}
	})
}
