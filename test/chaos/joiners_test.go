package chaos

import (
	"math/rand/v2"
	"testing"
)

// After a restore, etcd still has events of revisions that the truth lacks. For a joiner that
// starts there, these events would count as violations.
func TestJoinersStartAfterARestore(t *testing.T) {
	truth := newTruth()
	truth.restart(1, 100)
	for _, by := range []kind{nativeClient, etcdClient} {
		j := &joiner{joiners: &joiners{truth: truth}, by: by, rng: rand.New(rand.NewPCG(1, 1))}
		for range 1000 {
			if start := j.start(150); start <= 100 || start > 151 {
				t.Fatalf("%s joiner starts at %d, the truth knows 101 to 150", by, start)
			}
		}
	}
}
