package grpcserver

import (
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/net/http2"
)

// keepalive supervises a connection with one timer. It is guarded by conn.mu.
type keepalive struct {
	strikes int // early pings of the client since we last sent a message
	timer   *time.Timer
	pinged  time.Time // when our last ping was sent; zero: answered
	old     time.Time // when the connection reaches its age; zero: never
	idle    time.Time // when the last stream ended; zero: a stream is open
	asked   time.Time // when the client last pinged
}

// goodbye is the graceful end of a connection: RFC 9113, 6.8. It is guarded by conn.mu.
type goodbye struct {
	over  bool      // all of the last streams have ended
	last  bool      // the final GOAWAY was sent: it names the last stream
	begun time.Time // when the client was asked to open no more streams; zero: not asked
}

var (
	errSilent = errors.New("the client is silent, and does not answer a ping")
	errIdle   = errors.New("no stream for too long")
	errOld    = errors.New("calls are open that began before the connection was too old")
)

// drainPing is the ping after the first GOAWAY frame. Its answer shows that the client has
// read that frame.
var drainPing = [8]byte{'g', 'o', 'o', 'd', 'b', 'y', 'e', '!'} //nolint:gochecknoglobals // a constant

// maxStrikes bounds the early pings of a client, as in grpc-go.
const maxStrikes = 2

// tooOften counts a ping of the client, and reports whether there were too many early pings.
func (k *keepalive) tooOften(now time.Time, least time.Duration) bool {
	if now.Sub(k.asked) < least {
		k.strikes++
	}
	k.asked = now
	return k.strikes > maxStrikes
}

// sent resets the strikes: clients ping more often while they receive messages, to measure the path.
func (k *keepalive) sent() { k.strikes = 0 }

func (k *keepalive) stop() {
	if k.timer != nil {
		k.timer.Stop()
	}
}

// startKeepaliveLocked starts the timer.
func (c *conn) startKeepaliveLocked() {
	c.heard.Store(time.Now().UnixNano())
	c.keep.idle = time.Now()
	if c.err != nil {
		return
	}
	cfg := &c.srv.cfg
	first := cfg.PingAfter
	if cfg.Idle > 0 {
		first = min(first, cfg.Idle)
	}
	if cfg.Age > 0 {
		age := jittered(cfg.Age)
		c.keep.old = time.Now().Add(age)
		first = min(first, age)
	}
	c.keep.timer = time.AfterFunc(first, c.look)
}

// jittered returns d, give or take a tenth.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}

// look pings a silent client, and ends the connection of a client that stays silent, has
// had no stream for too long, or has been connected for too long.
func (c *conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.answerProbeLocked()
	now, cfg := time.Now(), &c.srv.cfg
	heard := time.Unix(0, c.heard.Load())
	if !heard.Before(c.keep.pinged) {
		c.keep.pinged = time.Time{}
	}
	var next time.Time
	switch {
	case !c.keep.pinged.IsZero():
		if next = c.keep.pinged.Add(cfg.PingTimeout); !now.Before(next) {
			c.failLocked(errSilent)
			return
		}
	case now.Sub(heard) >= cfg.PingAfter:
		c.out.frame(http2.FramePing, 0, 0, make([]byte, 8)...)
		c.keep.pinged, next = now, now.Add(cfg.PingTimeout)
	default:
		next = heard.Add(cfg.PingAfter)
	}
	if due := c.dueLocked(now); c.bye.begun.IsZero() && !due.IsZero() {
		if !now.Before(due) {
			c.drainLocked(now)
		} else if due.Before(next) {
			next = due
		}
	}
	if !c.bye.begun.IsZero() && !c.keep.old.IsZero() {
		cut := c.keep.old.Add(cfg.Grace)
		if !now.Before(cut) {
			c.failLocked(errOld)
			return
		}
		if cut.Before(next) {
			next = cut
		}
	}
	if !c.bye.begun.IsZero() && !c.bye.last && now.Sub(c.bye.begun) >= cfg.PingTimeout {
		c.drainedLocked() // stop waiting for the answer to the ping
	}
	(*resting)(c).rouseLocked() // maybe only parked calls have remained
	c.keep.timer.Reset(next.Sub(now))
	c.flushLocked()
}

// dueLocked returns when the graceful end of the connection is due; zero: no time is known.
func (c *conn) dueLocked(now time.Time) time.Time {
	due, idle := c.keep.old, c.srv.cfg.Idle
	if idle == 0 {
		return due
	}
	end := now.Add(idle) // at the earliest, while there is a stream
	if !c.keep.idle.IsZero() {
		end = c.keep.idle.Add(idle)
	}
	if due.IsZero() || end.Before(due) {
		return end
	}
	return due
}

// drainLocked asks the client to begin no more streams. Streams that it has already sent are
// still served.
func (c *conn) drainLocked(now time.Time) {
	c.bye.begun = now
	c.out.goAway(maxWindow, http2.ErrCodeNo, "")
	c.out.frame(http2.FramePing, 0, 0, drainPing[:]...)
}

// drainedLocked sends the final GOAWAY with the last stream. The connection ends after the open streams.
func (c *conn) drainedLocked() {
	if c.bye.begun.IsZero() || c.bye.last {
		return
	}
	c.bye.last = true
	c.out.goAway(c.maxID, http2.ErrCodeNo, "")
	c.bye.over = len(c.streams) == 0
}
