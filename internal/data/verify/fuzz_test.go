package verify

import (
	"testing"

	"google.golang.org/protobuf/proto"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/data/keytree"
)

// Any two responses of other nodes can be compared. The result is the same in both orders, and has at most as many
// differences as keys.
func FuzzDigest(f *testing.F) {
	for _, m := range []*peerv1.DigestResponse{
		{Revision: 7, Keys: 3, Bytes: 100, Buckets: make([]uint64, len(keytree.Digest{}.Buckets))},
		{Revision: 7, Buckets: []uint64{1, 2, 3}},
		{Revision: -1, Keys: -1, Buckets: make([]uint64, 2*len(keytree.Digest{}.Buckets))},
		{KeyDigests: []*peerv1.KeyDigest{{Key: []byte("a"), ModRevision: 3, Hash: 9}, {Key: []byte("b")}, {}}, More: true},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, one, other []byte) {
		var a, b peerv1.DigestResponse
		if proto.Unmarshal(one, &a) != nil || proto.Unmarshal(other, &b) != nil {
			return
		}
		x, y := sumOf(&a), sumOf(&b)
		differ := x.Differ(y)
		if again := y.Differ(x); len(differ) != len(again) {
			t.Fatalf("%v in one order, %v in the other", differ, again)
		}
		found := keytree.Differences(keysOf(&a), keysOf(&b))
		if len(found) > len(a.GetKeyDigests())+len(b.GetKeyDigests()) {
			t.Fatalf("%d differences in responses of %d and %d keys", len(found), len(a.GetKeyDigests()), len(b.GetKeyDigests()))
		}
	})
}
