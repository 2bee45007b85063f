package api

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/guard"
)

// rounds is the set of open watches. One goroutine visits them for periodic work: bookmarks, and
// reviews of their senders' rights.
type rounds struct {
	mu       sync.Mutex
	all      map[sender]*reviewed // guarded by mu
	draining bool                 // guarded by mu
}

// sender identifies the watches that one review can allow.
type sender struct {
	credentials guard.Credentials
	whole       guard.Attributes
}

// reviewed are the watches of a sender, so that one review covers all of them without a visit to each.
type reviewed struct {
	sender
	again   *http.Request        // stream.again of any of the watches
	watches map[*stream]struct{} // guarded by rounds.mu
	checked time.Time            // of the last review; owned by the rounds
}

// shortRound is the longest interval between visits to all watches.
const shortRound = time.Second

// every returns the interval between visits.
func (c *Config) every() time.Duration { return min(shortRound, c.Recheck, c.BookmarkEvery) }

func (r *rounds) add(s *stream) {
	k := sender{guard.CredentialsOf(s.again), s.q.attributes().Whole()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.reviewed = r.all[k]; s.reviewed == nil {
		s.reviewed = &reviewed{sender: k, again: s.again, watches: map[*stream]struct{}{}, checked: s.began}
		r.all[k] = s.reviewed
	}
	s.reviewed.watches[s] = struct{}{}
	if r.draining {
		s.endsIn(s.s.turn())
	}
}

func (r *rounds) remove(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(s.reviewed.watches, s); len(s.reviewed.watches) == 0 {
		delete(r.all, s.reviewed.sender)
	}
}

// drain ends the watches one after the other.
func (r *rounds) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
	for _, by := range r.all {
		for s := range by.watches {
			s.endsIn(s.s.turn())
		}
	}
}

// endsIn ends the watch after d, or at its own timeout if that is earlier.
func (s *stream) endsIn(d time.Duration) { s.timer.Reset(min(time.Until(s.ends), d)) }

// round requests the bookmarks that are due, and reviews the senders that are due.
func (s *Server) round(now time.Time) {
	soon := now.Add(s.cfg.every() / 2) // due by then: the next round is later
	var due []*reviewed
	s.rounds.mu.Lock()
	for _, by := range s.rounds.all {
		for w := range by.watches {
			if soon.Sub(w.marked) >= s.cfg.BookmarkEvery {
				w.marked = now
				w.ask(askBookmark)
			}
		}
		if soon.Sub(by.checked) >= s.cfg.Recheck {
			by.checked = now
			due = append(due, by)
		}
	}
	s.rounds.mu.Unlock()
	for _, by := range due {
		s.review(by)
	}
}

// review ends the watches whose sender has lost the right to them. The right to watch the whole
// resource covers all of them.
func (s *Server) review(by *reviewed) {
	if s.cfg.Guard.Remembers(by.again, &by.whole) {
		return
	}
	s.rounds.mu.Lock()
	watches := slices.Collect(maps.Keys(by.watches))
	s.rounds.mu.Unlock()
	var unknown []*stream
	for _, w := range watches {
		if !w.checking.Load() && !s.cfg.Guard.Remembers(w.again, w.q.attributes()) {
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
			if s.cfg.Guard.Remembers(w.again, &by.whole) {
				w.checking.Store(false)
			} else {
				go w.check()
			}
		}
	}()
}

// check ends the watch if its sender has lost the right. It may wait for an apiserver.
func (s *stream) check() {
	defer s.checking.Store(false)
	if !s.s.mayStill(s.again, s.q) {
		s.ask(askWithdrawn)
	}
}
