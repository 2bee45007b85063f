package follow

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/client"
)

// The position is saved at once unless more updates are pending, and once a second if only
// the revision has changed.
func TestPositionsAreSavedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved []int64
		s := Saver{store: noted(func(p client.Position) { saved = append(saved, p.Revision) })}
		for _, step := range []struct {
			after    time.Duration
			revision int64
			kind     client.UpdateKind
			more     bool
			saved    bool
		}{
			{0, 2, client.KindState, true, true},
			{0, 3, client.KindBatch, true, false},
			{saveBusy - 1, 4, client.KindBatch, true, false},
			{1, 5, client.KindBatch, true, true},
			{0, 6, client.KindBatch, false, true},
			{saveBusy, 7, client.KindProgress, false, false},
			{saveIdle - saveBusy, 8, client.KindProgress, false, true},
			{saveIdle, 8, client.KindProgress, false, false}, // already saved
			{0, 9, client.KindBatch, false, true},
			{0, 10, client.KindBatch, true, false},
			{0, 11, client.KindProgress, false, true}, // a change is not saved yet
			{0, 12, client.KindBatch, true, false},
			{saveBusy - 1, 13, client.KindProgress, true, false},
			{1, 14, client.KindProgress, true, true},
			{saveBusy, 15, client.KindProgress, true, false},
		} {
			time.Sleep(step.after)
			before := len(saved)
			if err := s.Passed(t.Context(), &client.Update{Kind: step.kind, Revision: step.revision}, step.more); err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(saved[before:], step.revision); got != step.saved {
				t.Errorf("revision %d: saved %v, want %v", step.revision, got, step.saved)
			}
		}
	})
}

// noted is a store without a position that records the saved ones.
type noted func(client.Position)

func (noted) Load(context.Context, client.Range) (client.Position, error) {
	return client.Position{}, nil
}

func (f noted) Save(_ context.Context, _ client.Range, p client.Position) error {
	f(p)
	return nil
}
