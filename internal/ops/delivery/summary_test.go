package delivery

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Many shards that lose a source and find another cause two log lines, in this order, with each shard counted once.
// Handovers cause none.
func TestSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := newSummary(slog.New(slog.NewTextHandler(&out, nil)))
		for id := range 100 {
			d.add(shard.ID(id), replica.Notice{What: replica.SourceLost, Source: "n1", Err: errors.New("EOF")})
			d.add(shard.ID(id), replica.Notice{What: replica.SourceLost, Source: "n1", Err: errors.New("EOF")}) // again
			d.add(shard.ID(id), replica.Notice{What: replica.HandedOn, Source: "n2", Err: errors.New("drains")})
		}
		lost := time.Now()
		time.Sleep(250 * time.Millisecond)
		for id := range 100 {
			d.add(shard.ID(id), replica.Notice{What: replica.Followed, Source: replica.Etcd, Began: lost})
		}
		d.tell()
		d.tell()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 {
			t.Fatalf("%d lines:\n%s", len(lines), out.String())
		}
		for i, want := range []string{
			`msg="source lost, changing over" source=n1 shards=100 error=EOF`,
			`msg="changed over to another source" source=etcd shards=100 longest_without=250ms`,
		} {
			if !strings.HasSuffix(lines[i], want) {
				t.Errorf("got  %s\nwant %s", lines[i], want)
			}
		}
	})
}
