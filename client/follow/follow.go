// Package follow calls a function for each update of a range of keys, at least once and in order,
// across restarts of the program: [Run] saves the position of its watch in a [Store] and resumes
// after it. Package client describes watches.
package follow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shardwatch/shardwatch/client"
)

// Store keeps positions for [Run]; [File] is an implementation. A program whose apply writes
// to a database can save the position in the same transaction; its Save then does nothing.
type Store interface {
	// Load returns the last saved position of the range; the zero Position if there is none.
	Load(ctx context.Context, r client.Range) (client.Position, error)
	// Save replaces the position of the range. Once it has returned nil, the position
	// must be as durable as the program needs.
	Save(ctx context.Context, r client.Range, p client.Position) error
}

// The longest delays before a position is saved: while more updates are pending, and
// while no key of the range changes.
const (
	saveBusy = 100 * time.Millisecond
	saveIdle = time.Second
)

// lastSave bounds the save after the end of Run's context.
const lastSave = 4 * time.Second

// Run calls apply for each update of a range, one at a time and in order, and then saves
// the position in the store. It starts after the position in the store; without one, with
// the state ([client.KindState]). It returns when ctx ends, or with the error of apply, of
// the store, or of the watch ([client.Watcher.Next]).
//
// Each update is applied at least once, even if this program, nodes or etcd fail, and
// in this order:
//
//   - apply gets whole updates, each after all updates before it were applied.
//     [client.Update.Apply] handles every kind; [client.KindProgress] is not passed.
//   - The position is saved only after apply has returned nil: at once if no other update
//     is pending, else at most every 100 ms, and when Run returns, which takes up to 4 s
//     after the end of ctx. While no key of the range changes it is saved at most once a second.
//   - After an error of apply, or a crash, the next Run with the store passes the updates
//     after the saved position again: unchanged if the nodes still have them, else one
//     [client.KindDelta] or [client.KindResync] in their place, also when etcd was restored
//     or rebuilt.
//
// So apply must be idempotent: it may be called again for an update that it has
// processed, in part or whole.
func Run(ctx context.Context, c *client.Client, r client.Range, store Store, apply func(ctx context.Context, u client.Update) error, opts ...client.MirrorOption) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("follow %v: %w", r, err)
		}
	}()
	s, at, err := NewSaver(ctx, store, r)
	if err != nil {
		return err
	}
	begin := client.WithState()
	if at != (client.Position{}) {
		begin = client.FromPosition(at)
	}
	own := []client.WatchOption{begin, client.WithProgress()} // the position advances without changes, too
	for _, o := range opts {
		own = append(own, o)
	}
	w := c.Watch(ctx, r, own...)
	defer w.Close()
	defer func() { // also when ctx has ended
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSave)
		defer cancel()
		err = errors.Join(err, s.Flush(ctx))
	}()
	for {
		u, err := w.Next(ctx)
		if ctx.Err() != nil { // updates may still be pending
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if u.Kind != client.KindProgress {
			if err := apply(ctx, u); err != nil {
				return fmt.Errorf("apply %v at %v: %w", u.Kind, u.Position(), err)
			}
		}
		if err := s.Passed(ctx, &u, w.Stats().Updates > 0); err != nil {
			return err
		}
	}
}

// Saver saves the position of a range in a store as [Run] does, for a program that reads a
// [client.Watcher] itself. It serves one goroutine.
type Saver struct {
	store Store
	rng   client.Range
	at    client.Position // after the last update that was applied
	saved client.Position // in the store
	when  time.Time
	dirty bool // a change was applied after saved
}

// NewSaver returns a saver and the position in the store to resume after, zero if there is none.
// The watch needs [client.WithProgress] for a position that advances without changes, too.
func NewSaver(ctx context.Context, store Store, r client.Range) (*Saver, client.Position, error) {
	at, err := store.Load(ctx, r)
	if err != nil {
		return nil, client.Position{}, fmt.Errorf("load the position: %w", err)
	}
	return &Saver{store: store, rng: r, at: at, saved: at}, at, nil
}

// Passed advances the position after an update that was applied, and saves it: at once,
// within 100 ms if more updates are pending, or within a second if no key of the range
// has changed. It returns the store's error.
func (s *Saver) Passed(ctx context.Context, u *client.Update, more bool) error {
	s.at = u.Position()
	s.dirty = s.dirty || u.Kind != client.KindProgress
	wait := time.Duration(0)
	switch {
	case !s.dirty:
		wait = saveIdle
	case more:
		wait = saveBusy
	}
	if time.Since(s.when) < wait {
		return nil
	}
	return s.Flush(ctx)
}

// Flush saves the position if the store does not have it. A program calls it before it ends.
func (s *Saver) Flush(ctx context.Context) error {
	if s.at == s.saved {
		return nil
	}
	if err := s.store.Save(ctx, s.rng, s.at); err != nil {
		return fmt.Errorf("save the position %v: %w", s.at, err)
	}
	s.saved, s.when, s.dirty = s.at, time.Now(), false
	return nil
}
