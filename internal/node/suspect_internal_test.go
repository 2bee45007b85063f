package node

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// etcd's state of a key confirms a claim, contradicts it, or proves nothing: etcd may
// have compacted the revision, or may be behind it.
func TestJudgeClaim(t *testing.T) {
	at := func(revision kv.Revision, value string) *kv.KeyValue {
		return kv.NewKeyValue(kv.Fields{Key: []byte("k"), Value: []byte(value), CreateRevision: 2, ModRevision: revision, Version: 1})
	}
	for name, c := range map[string]struct {
		claim kv.Claim
		is    *kv.KeyValue
		read  kv.Revision
		want  int
	}{
		"the same":                       {kv.Claim{Revision: 10, Held: at(5, "v")}, at(5, "v"), 10, 1},
		"another value":                  {kv.Claim{Revision: 10, Held: at(5, "v")}, at(5, "w"), 10, -1},
		"another revision":               {kv.Claim{Revision: 10, Held: at(5, "v")}, at(6, "v"), 10, -1},
		"changed in the last revision":   {kv.Claim{Revision: 10, Held: at(5, "v")}, at(10, "v"), 10, -1},
		"missing":                        {kv.Claim{Revision: 10, Held: at(5, "v")}, nil, 10, -1},
		"missing before":                 {kv.Claim{Revision: 10, Held: at(5, "v")}, nil, 8, -1},
		"the same now":                   {kv.Claim{Revision: 10, Held: at(5, "v")}, at(5, "v"), 0, 1},
		"another now":                    {kv.Claim{Revision: 10, Held: at(5, "v")}, at(6, "v"), 0, -1},
		"changed since":                  {kv.Claim{Revision: 10, Held: at(5, "v")}, at(11, "w"), 0, 0},
		"deleted since":                  {kv.Claim{Revision: 10, Held: at(5, "v")}, nil, 0, 0},
		"not there, as was held":         {kv.Claim{Revision: 10}, nil, 10, 1},
		"there, and was not held":        {kv.Claim{Revision: 10}, at(5, "v"), 10, -1},
		"there before it may be deleted": {kv.Claim{Revision: 10}, at(5, "v"), 8, 0},
		"there now, from before":         {kv.Claim{Revision: 10}, at(5, "v"), 0, -1},
		"there since":                    {kv.Claim{Revision: 10}, at(11, "v"), 0, 0},
		"not changed, as was held":       {kv.Claim{Revision: 10, Below: 4}, at(3, "v"), 10, 1},
		"changed, and was not held so":   {kv.Claim{Revision: 10, Below: 4}, at(4, "v"), 10, -1},
		"deleted at any time":            {kv.Claim{Revision: 10, Below: 4}, nil, 10, 1},
	} {
		if got := judgeClaim(c.claim, c.is, c.read); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
