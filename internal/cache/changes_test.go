package cache

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// The kept deletes are bounded in bytes, by whole revisions. A client that was away for
// longer gets an error, and the cache logs a message.
func TestDeletesAreForgottenForTheirBytes(t *testing.T) {
	var log bytes.Buffer
	cfg := small(nil)
	cfg.TombstoneBytes, cfg.Logger = 1000, slog.New(slog.NewTextHandler(&log, nil))
	c := loaded(cfg, 10)
	revision := kv.Revision(10)
	for i := range 100 {
		revision++
		b := batch(revision, del(fmt.Sprintf("a%04d", i), revision), del(fmt.Sprintf("b%04d", i), revision))
		c.apply(&b)
	}
	s := c.Status()
	if s.TombstoneBytes > cfg.TombstoneBytes || s.Tombstones%2 != 0 || s.Tombstones == 0 || s.TombstonesSqueezed == 0 {
		t.Errorf("%+v", s)
	}
	var compacted *kv.CompactedError
	if _, err := c.Changes(t.Context(), all, s.DeltaFloor-2, 0); !errors.As(err, &compacted) || compacted.Floor != s.DeltaFloor || compacted.Requested != s.DeltaFloor-1 {
		t.Errorf("since a revision before the kept deletes: %v", err)
	}
	changes, err := c.Changes(t.Context(), all, s.DeltaFloor-1, 0)
	if err != nil || len(changes.Deleted) != s.Tombstones || len(changes.Changed) != 0 {
		t.Errorf("%d of %d deletes, %v", len(changes.Deleted), s.Tombstones, err)
	}
	for range 3 {
		c.trimmed = time.Time{} // as if a second had passed
		c.advance(revision)
	}
	if n := strings.Count(log.String(), "--tombstone-bytes"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, log.String())
	}
}

// They are also bounded in time. That is expected, and not logged.
func TestDeletesAreForgottenInTime(t *testing.T) {
	cfg := small(nil)
	c := loaded(cfg, 10)
	began := time.Now()
	for i := range 48 {
		revision := kv.Revision(11 + i)
		b := batch(revision, del("a", revision))
		b.Received = began.Add(time.Duration(i) * time.Hour)
		c.apply(&b)
	}
	s := c.Status()
	if span := 58 + 1 - s.DeltaFloor; span < 23 || span > 26 || s.TombstonesSqueezed != 0 {
		t.Errorf("deletes of the last %d hours are known: %+v", span, s)
	}
	c.changes.trim(began.Add(80 * time.Hour))
	if s := c.Status(); s.Tombstones != 0 || s.TombstoneBytes != 0 || s.DeltaFloor != 59 {
		t.Errorf("%+v", s)
	}
}

// A delta has the changes after its revision: neither a delete nor a put of that
// revision itself, and none from a future revision.
func TestADeltaStartsAfterItsRevision(t *testing.T) {
	c := loaded(small(nil), 10)
	for _, b := range []kv.Batch{puts(11, "a", "b"), batch(12, del("a", 12)), puts(13, "c"), batch(14, del("b", 14))} {
		c.apply(&b)
	}
	for since, want := range map[kv.Revision]string{11: "[c] [a b]", 12: "[c] [b]", 13: "[] [b]", 14: "[] []"} {
		changes, err := c.Changes(t.Context(), all, since, 0)
		if err != nil {
			t.Fatal(err)
		}
		var changed []string
		for _, item := range changes.Changed {
			changed = append(changed, string(item.Key()))
		}
		if got := fmt.Sprint(changed, changes.Deleted); got != want || changes.Revision != 14 {
			t.Errorf("since %d: %s at %d, want %s", since, got, changes.Revision, want)
		}
	}
	var future *kv.FutureError
	if _, err := c.Changes(t.Context(), all, 15, 0); !errors.As(err, &future) || future.Requested != 15 || future.Current != 14 {
		t.Errorf("since a revision to come: %v", err)
	}
	if _, err := c.Changes(t.Context(), all, 14, 13); !errors.As(err, &future) || future.Requested != 14 || future.Current != 13 {
		t.Errorf("since a revision after the one that is read: %v", err)
	}
}
