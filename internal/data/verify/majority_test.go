package verify

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
)

// Half of the copies are not a majority: of two differing copies, neither counts as right.
func TestMajorityIsMoreThanHalf(t *testing.T) {
	copies := &finding{copies: []copied{{sum: new(keytree.Digest)}, {sum: new(keytree.Digest)}, {}}}
	if is, some := majority(copies, []keytree.KeyDigest{{Hash: 1}, {Hash: 2}, {Hash: 1}}); some {
		t.Errorf("of two differing copies, %+v counts as right", is)
	}
	copies.copies[2].sum = new(keytree.Digest)
	if is, some := majority(copies, []keytree.KeyDigest{{Hash: 1}, {Hash: 2}, {Hash: 1}}); !some || is.Hash != 1 {
		t.Errorf("of three copies, %+v counts as right (majority: %v), want hash 1", is, some)
	}
}
