package port

import (
	"io"
	"net/http"
	"time"
)

// slowest is the least rate at which a client has to read after an initial time, in bytes per
// second: an unread list keeps its state in memory.
const slowest = 16 << 10

// TooSlow reports whether a client that has received so many bytes has read less than 16 KiB a second, after
// an initial time.
func TooSlow(since time.Time, bytes int, first time.Duration) bool {
	return time.Since(since) > first+time.Duration(bytes)*time.Second/slowest
}

// patient is the writer of NewPatient.
type patient struct {
	w       http.ResponseWriter
	control *http.ResponseController
	each    time.Duration
	end     time.Time // when the client must have read all written bytes; zero: before the first write
}

// NewPatient returns a writer to a client that may be slow, but must not stop: a write may block for
// the given time, and after an initial time of that length the client has to read 16 KiB a second.
func NewPatient(w http.ResponseWriter, each time.Duration) io.Writer {
	return &patient{w: w, control: http.NewResponseController(w), each: each}
}

// Write implements io.Writer.
func (p *patient) Write(b []byte) (int, error) {
	now := time.Now()
	if p.end.IsZero() {
		p.end = now.Add(p.each)
	}
	p.end = p.end.Add(time.Duration(len(b)) * time.Second / slowest)
	end := now.Add(p.each)
	if p.end.Before(end) {
		end = p.end
	}
	if err := p.control.SetWriteDeadline(end); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}
