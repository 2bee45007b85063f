package grpcserver

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/net/http2"
)

// handle handles a frame of the client. An http2.StreamError resets the stream; any other
// error ends the connection.
func (c *conn) handle(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.onData(f)
	case *http2.MetaHeadersFrame:
		return c.onHeaders(f)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.RSTStreamFrame:
		return c.onReset(f)
	case *http2.SettingsFrame:
		return c.onSettings(f)
	case *http2.PingFrame:
		return c.onPing(f)
	case *http2.WindowUpdateFrame:
		return c.onWindowUpdate(f)
	case *http2.PushPromiseFrame: // forbidden for clients: RFC 9113, 8.4
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil // GOAWAY, and unknown types: RFC 9113, 5.5
}

// idleLocked reports whether a stream was never opened.
func (c *conn) idleLocked(id uint32) bool { return id%2 == 0 || id > c.maxID }

// maxEmpty bounds the DATA frames without content of a stream: RFC 9113, 10.5.
const maxEmpty = 100

func (c *conn) onData(f *http2.DataFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idleLocked(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	// Padding counts towards the window: RFC 9113, 6.1. The connection's window is restored when
	// bytes arrive, because each stream bounds its unread bytes.
	size := int(f.Length)
	if c.received += size; c.received > c.srv.cfg.ConnWindow {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	if c.received >= c.srv.cfg.ConnWindow/4 {
		c.out.windowUpdate(0, c.received)
		c.received = 0
	}
	s := c.streams[f.StreamID]
	if s == nil || s.halfClosed {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	}
	return s.receiveLocked(f.Data(), size, f.StreamEnded())
}

func (c *conn) onReset(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idleLocked(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	s := c.streams[f.StreamID]
	if s == nil {
		return nil
	}
	c.leaveLocked(s)
	return s.wasResetLocked()
}

// wasResetLocked counts the reset of an open stream, by the client or for an error of the client. It fails if
// too many streams of the connection were reset early.
func (s *stream) wasResetLocked() error {
	c := s.conn
	if c.heard.Load()-s.opened < int64(earlyReset) {
		c.early++
	}
	if streams := int(c.maxID/2) + 1; streams >= leastStreams && c.early > streams/2 {
		return errResets
	}
	return nil
}

const (
	// leastStreams is the number of streams from which the resets of a connection are checked.
	// earlyReset is the age of a stream below which its reset counts: shorter than the timeouts
	// of honest clients.
	leastStreams = 500
	earlyReset   = 100 * time.Millisecond
	// maxSettings bounds the SETTINGS frames of a client within settingsTime. A client needs one,
	// and a few more when it measures the path.
	maxSettings  = 100
	settingsTime = time.Minute
)

var (
	// errResets ends connections if most of their streams are reset early, by the client
	// (CVE-2023-44487) or by us for an invalid frame (CVE-2025-8671). Envoy has the same rule.
	errResets = fmt.Errorf("%w: most streams are reset at once", errFlood)
	// errSettings ends connections whose clients change their settings too often.
	errSettings = fmt.Errorf("%w: too many settings", errFlood)
)

func (c *conn) onSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.settingsSince) >= settingsTime {
		c.settings, c.settingsSince = 0, now
	}
	if c.settings++; c.settings > maxSettings {
		return errSettings
	}
	before := c.initial
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingInitialWindowSize:
			c.initial = int64(s.Val)
		case http2.SettingMaxHeaderListSize:
			c.headers = s.Val
		}
		// HEADER_TABLE_SIZE: our encoder has no table. MAX_FRAME_SIZE: our frames never exceed
		// its minimum. ENABLE_PUSH: we do not push.
		return nil
	})
	if err != nil {
		return err
	}
	c.out.frame(http2.FrameSettings, http2.FlagSettingsAck, 0)
	if c.initial > before {
		for _, s := range c.streams {
			if s.windowLocked() > maxWindow { // RFC 9113, 6.9.2
				return http2.ConnectionError(http2.ErrCodeFlowControl)
			}
			if s.starved {
				s.sendable.Signal()
			}
		}
	}
	return nil
}

// errPings ends connections whose clients ping too often.
var errPings = errors.New("too many pings")

func (c *conn) onPing(f *http2.PingFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.IsAck() {
		if f.Data == drainPing {
			c.drainedLocked()
		}
		return nil
	}
	if c.keep.tooOften(time.Now(), c.srv.cfg.PingLeast) {
		return errPings
	}
	if f.Data == probePing && !c.probe.held {
		c.probe.held = true
		return nil
	}
	c.out.frame(http2.FramePing, http2.FlagPingAck, 0, f.Data[:]...)
	return nil
}

// maxWindow is the largest flow-control window: RFC 9113, 6.9.1.
const maxWindow = 1<<31 - 1

func (c *conn) onWindowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		if c.window += int64(f.Increment); c.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.grantLocked()
		return nil
	}
	if c.idleLocked(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	s := c.streams[f.StreamID]
	if s == nil {
		return nil // the stream may have ended meanwhile: RFC 9113, 5.1
	}
	if s.added += int64(f.Increment); s.windowLocked() > maxWindow {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	if s.starved {
		s.sendable.Signal()
	}
	return nil
}
