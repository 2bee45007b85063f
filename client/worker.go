package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// PositionStore keeps positions for [Client.Follow]. [PositionFile] is one; a program
// whose apply writes to a database may keep the position in the same transaction, and
// have Save do nothing.
type PositionStore interface {
	// Load returns the position that was saved last for the range; the zero one if
	// there is none.
	Load(ctx context.Context, r Range) (Position, error)
	// Save replaces the position of the range. When it has returned nil, the position
	// survives whatever the program is to survive.
	Save(ctx context.Context, r Range, p Position) error
}

// How long a position may wait to be saved: while more updates wait, and when no key of
// the range has changed.
const (
	saveBusy = 100 * time.Millisecond
	saveIdle = time.Second
)

// Follow calls apply for each update of a range, one at a time and in order, and has the
// store save the position afterwards. It begins after the position in the store; without
// one, with the state ([KindState]). It returns when ctx ends, or with the error of
// apply or the store, or when the watch ends as [Watcher.Next] says.
//
// Each update is applied at least once, whatever happens to this program, the nodes and
// etcd, and in this order:
//
//   - An update is passed to apply whole, never before all updates before it were applied.
//     [Update.Apply] deals with every kind; [KindProgress] is not passed.
//   - The position is saved only after apply has returned nil: at once if no other update
//     waits, else at most every 100 ms, and when Follow returns. While no key of the range
//     changes it is saved once a second at most.
//   - After an error of apply, or a crash, the next Follow with the store passes the updates
//     after the saved position again: those that the nodes still have as they were, else one
//     [KindDelta] or [KindResync] in their place, also when etcd was restored or rebuilt.
//
// So apply must have the same effect when it is called again for an update that it has
// dealt with, in part or whole.
func (c *Client) Follow(ctx context.Context, r Range, store PositionStore, apply func(ctx context.Context, u Update) error, opts ...MirrorOption) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("follow %v: %w", r, err)
		}
	}()
	s, at, err := NewPositionSaver(ctx, store, r)
	if err != nil {
		return err
	}
	begin := WithState()
	if at != (Position{}) {
		begin = FromPosition(at)
	}
	own := []WatchOption{begin, WithProgress()} // a range without changes has a position, too
	for _, o := range opts {
		own = append(own, o)
	}
	w := c.Watch(ctx, r, own...)
	defer w.Close()
	defer func() { // also when ctx has ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.AttemptTimeout)
		defer cancel()
		err = errors.Join(err, s.Flush(ctx))
	}()
	for {
		u, err := w.Next(ctx)
		if ctx.Err() != nil { // updates may wait still
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if u.Kind != KindProgress {
			if err := apply(ctx, u); err != nil {
				return fmt.Errorf("apply %v at %v: %w", u.Kind, u.Position(), err)
			}
		}
		if err := s.Passed(ctx, &u, w.Stats().Updates > 0); err != nil {
			return err
		}
	}
}

// PositionSaver saves the position of a range in a store as [Client.Follow] does: for a
// program that reads a [Watcher] itself. It serves one goroutine.
type PositionSaver struct {
	store PositionStore
	rng   Range
	at    Position // after the last update that was applied
	saved Position // in the store
	when  time.Time
}

// NewPositionSaver returns a saver and the position in the store to resume after; the zero
// one: there is none. The watch needs [WithProgress], so that a range without changes has
// a position, too.
func NewPositionSaver(ctx context.Context, store PositionStore, r Range) (*PositionSaver, Position, error) {
	at, err := store.Load(ctx, r)
	if err != nil {
		return nil, Position{}, fmt.Errorf("load the position: %w", err)
	}
	return &PositionSaver{store: store, rng: r, at: at, saved: at}, at, nil
}

// Passed moves the position after an update that was applied, and saves it: at once,
// within 100 ms if more updates wait, or within a second if no key of the range has
// changed. It returns the store's error.
func (s *PositionSaver) Passed(ctx context.Context, u *Update, more bool) error {
	s.at = u.Position()
	wait := time.Duration(0)
	switch {
	case u.Kind == KindProgress:
		wait = saveIdle
	case more:
		wait = saveBusy
	}
	if time.Since(s.when) < wait {
		return nil
	}
	return s.Flush(ctx)
}

// Flush saves the position if the store does not have it. A program calls it at its end.
func (s *PositionSaver) Flush(ctx context.Context) error {
	if s.at == s.saved {
		return nil
	}
	if err := s.store.Save(ctx, s.rng, s.at); err != nil {
		return fmt.Errorf("save the position %v: %w", s.at, err)
	}
	s.saved, s.when = s.at, time.Now()
	return nil
}
