package api

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kube/guard"
	"github.com/shardwatch/shardwatch/internal/kube/port"
	"github.com/shardwatch/shardwatch/internal/kube/upstream"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// A watch at rest has no goroutine. The fan wakes its task, and a pump writes the pending
// frames, which does not block while the client reads. All other work, such as a catch-up from
// the cache, runs on a separate goroutine. The watch is apart then, and the pump does not touch it.

// The requests to a watch.
const (
	askBookmark  uint32 = 1 << iota
	askEnd              // its timeout has passed
	askWithdrawn        // its sender lost the right
	askGone             // its client has disconnected
)

// parker is a ResponseWriter whose response can continue after the handler has returned.
type parker interface {
	Park()
	End()
}

// outlet writes to the client of a watch. The watchdog bounds the time of a blocked write.
type outlet struct {
	pump.Transport
	s     *stream
	waits func() // o.waiting, allocated once
	wait  func() // of the pump
	armed bool   // the write is blocked
}

// SendFramed implements pump.Transport.
func (o *outlet) SendFramed(wait func(), parts ...[]byte) error {
	o.wait = wait
	err := o.Transport.SendFramed(o.waits, parts...)
	if o.armed {
		o.armed = false
		o.s.stuck.Pause()
	}
	if err != nil {
		o.s.ask(askGone)
	}
	return err
}

func (o *outlet) waiting() {
	if !o.armed {
		o.armed = true
		o.s.stuck.Begin()
	}
	o.wait()
}

// serve serves the watch until the client, its timeout or the cache ends it. It returns
// earlier if the response can continue after the handler has returned.
func (s *stream) serve(r *http.Request) {
	length := s.q.timeout
	if length == 0 {
		length = 30*time.Minute + rand.N(30*time.Minute) // as apiservers do
	}
	s.ends = s.began.Add(max(length, upstream.ShortestWatch))
	s.ctx, s.again = r.Context(), guard.Again(r)
	s.marked = s.began
	s.to.s, s.to.waits = s, s.to.waiting
	p, parks := s.w.(parker)
	if to, ok := s.w.(pump.Transport); ok && parks {
		s.to.Transport = to
	} else {
		s.to.Transport, parks = port.NewLine(s.w, s.control), false
	}
	s.apart.Store(true)
	s.pumped = s.s.pumps.OpenAt(s.client.Name, &s.to)
	s.task.Init(s.pumped, s.turn)
	s.timer = time.AfterFunc(time.Until(s.ends), func() { s.ask(askEnd) })
	s.unwatch = context.AfterFunc(s.ctx, func() { s.ask(askGone) })
	s.s.rounds.add(s)
	s.s.counts.watches.Add(1)
	s.f.watches.Add(1)
	if parks {
		p.Park()
		s.finish = p.End
		s.byItself()
		return
	}
	done := make(chan struct{})
	s.finish = func() { close(done) }
	s.byItself()
	<-done
}

// Wake implements cache.Waker: frames or requests are pending.
func (s *stream) Wake() {
	s.wake.Wake()
	if s.pumped != nil {
		s.task.Wake()
	}
}

func (s *stream) ask(what uint32) {
	s.asked.Or(what)
	s.Wake()
}

// turn writes the pending frames. It does not write before it passes the watch to a goroutine, so
// that the bytes of earlier turns have been sent.
func (s *stream) turn(*pump.Scratch) (again bool) {
	if s.apart.Load() {
		return false
	}
	asked := s.asked.Load()
	if s.left || asked&^askBookmark != 0 {
		s.apart.Store(true)
		go s.byItself()
		return false
	}
	var at kv.Revision
	if asked != 0 {
		at = s.f.fan.progress() // before the frames are taken
	}
	frames, last, left := s.member.take(s.frames)
	n := 0
	for _, frame := range frames {
		_ = s.pumped.SendBytes(frame) // outlet requests askGone if it fails
		n += len(frame)
	}
	s.took(frames, last, n)
	if s.left = left; asked != 0 && !left {
		s.asked.And(^askBookmark)
		if s.q.bookmarks {
			s.bookmark(max(at, s.sent), false)
			_ = s.pumped.SendBytes(s.out)
			s.s.counts.bytes.Add(int64(len(s.out)))
			s.out = nil
		}
	}
	return left
}

// byItself does the work of a watch that may block. It returns when the watch needs only the
// shared frames, or has ended.
func (s *stream) byItself() {
	for s.ctx.Err() == nil {
		asked := s.asked.Swap(0)
		if asked&askGone != 0 {
			break
		}
		if asked&(askEnd|askWithdrawn) != 0 {
			if asked&askWithdrawn != 0 {
				s.s.counts.withdrawn.Add(1)
			}
			s.last(s.ctx)
			break
		}
		alive := s.pending()
		if !s.flush() {
			break
		}
		if !alive {
			s.last(s.ctx)
			break
		}
		if asked&askBookmark != 0 {
			if s.progress(); !s.flush() {
				break
			}
		}
		if s.member != nil {
			s.left = false
			s.apart.Store(false)
			s.task.Start()
			return
		}
		wait.For(s.ctx, s.wake)
	}
	s.end()
}

// end releases the watch's resources, and ends the response.
func (s *stream) end() {
	s.s.rounds.remove(s)
	s.s.counts.watches.Add(-1)
	s.f.watches.Add(-1)
	s.timer.Stop()
	s.unwatch()
	s.pumped.Close()
	s.stuck.End()
	s.free()
	s.finish()
}
