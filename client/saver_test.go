package client

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The position is saved at once unless more waits, and once a second if nothing but
// the revision has changed.
func TestPositionsAreSavedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saved []int64
		s := PositionSaver{store: noted(func(p Position) { saved = append(saved, p.Revision) })}
		for _, step := range []struct {
			after    time.Duration
			revision int64
			kind     UpdateKind
			more     bool
			saved    bool
		}{
			{0, 2, KindState, true, true},
			{0, 3, KindBatch, true, false},
			{saveBusy - 1, 4, KindBatch, true, false},
			{1, 5, KindBatch, true, true},
			{0, 6, KindBatch, false, true},
			{saveBusy, 7, KindProgress, false, false},
			{saveIdle - saveBusy, 8, KindProgress, false, true},
			{saveIdle, 8, KindProgress, false, false}, // is there
		} {
			time.Sleep(step.after)
			before := len(saved)
			if err := s.Passed(t.Context(), &Update{Kind: step.kind, Revision: step.revision}, step.more); err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(saved[before:], step.revision); got != step.saved {
				t.Errorf("revision %d: saved %v, want %v", step.revision, got, step.saved)
			}
		}
	})
}

// noted is a store that has no position and notes those that it is given.
type noted func(Position)

func (noted) Load(context.Context, Range) (Position, error) { return Position{}, nil }

func (f noted) Save(_ context.Context, _ Range, p Position) error {
	f(p)
	return nil
}
