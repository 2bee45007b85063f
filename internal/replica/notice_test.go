package replica

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A live node that no longer serves a shard is reported as handing it on, not as lost.
func TestAHandoverIsNotALostSource(t *testing.T) {
	for _, c := range []struct {
		err  error
		want What
	}{
		{&kv.UnavailableError{Why: kv.NotReady, Detail: "shard 1 does not come from etcd directly here"}, HandedOn},
		{fmt.Errorf("follow: %w", &kv.NotHereError{Shard: 1}), HandedOn},
		{ErrSilent, SourceLost},
		{errors.New("EOF"), SourceLost},
	} {
		if got := leftWith(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}
