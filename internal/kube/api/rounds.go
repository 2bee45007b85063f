package api

import (
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/guard"
)

// rounds are the open watches. One goroutine goes through them for all that comes again and
// again: bookmarks, and whether their senders may still have them.
type rounds struct {
	mu       sync.Mutex
	all      map[*stream]struct{} // guarded by mu
	draining bool                 // guarded by mu
}

// shortRound is the longest interval between visits to all watches.
const shortRound = time.Second

// every returns how often the watches are gone through.
func (c *Config) every() time.Duration { return min(shortRound, c.Recheck, c.BookmarkEvery) }

func (r *rounds) add(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*stream]struct{}{}
	}
	r.all[s] = struct{}{}
	if r.draining {
		s.endsIn(s.s.turn())
	}
}

func (r *rounds) remove(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, s)
}

// drain has the watches end one after the other.
func (r *rounds) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
	for s := range r.all {
		s.endsIn(s.s.turn())
	}
}

// endsIn has the watch end after a time, if it does not before.
func (s *stream) endsIn(d time.Duration) { s.timer.Reset(min(time.Until(s.ends), d)) }

// sender identifies the watches that one review can allow.
type sender struct {
	credentials guard.Credentials
	whole       guard.Attributes
}

// round asks the watches whose time has come for bookmarks, and reviews them.
func (s *Server) round(now time.Time) {
	soon := now.Add(s.cfg.every() / 2) // the next round is later than that
	review := map[sender][]*stream{}
	s.rounds.mu.Lock()
	for w := range s.rounds.all {
		if soon.Sub(w.marked) >= s.cfg.BookmarkEvery {
			w.marked = now
			w.ask(askBookmark)
		}
		if soon.Sub(w.checked) >= s.cfg.Recheck && !w.checking.Load() {
			w.checked = now
			k := sender{guard.CredentialsOf(w.again), w.q.attributes().Whole()}
			review[k] = append(review[k], w)
		}
	}
	s.rounds.mu.Unlock()
	for k, watches := range review {
		s.review(&k.whole, watches)
	}
}

// review has the watches of one sender end that it may not have any more. A right to watch all
// of the resource is enough for all of them.
func (s *Server) review(whole *guard.Attributes, watches []*stream) {
	var unknown []*stream
	if s.cfg.Guard.Remembers(watches[0].again, whole) {
		return
	}
	for _, w := range watches {
		if !s.cfg.Guard.Remembers(w.again, w.q.attributes()) {
			w.checking.Store(true)
			unknown = append(unknown, w)
		}
	}
	if len(unknown) == 0 {
		return
	}
	go func() {
		unknown[0].check()
		for _, w := range unknown[1:] {
			if s.cfg.Guard.Remembers(w.again, whole) {
				w.checking.Store(false)
			} else {
				go w.check()
			}
		}
	}()
}

// check ends the watch if its sender may not have it any more. It may wait for an apiserver.
func (s *stream) check() {
	defer s.checking.Store(false)
	if !s.s.mayStill(s.again, s.q) {
		s.ask(askWithdrawn)
	}
}
