package port

import (
	"io"
	"net/http"
	"time"
)

// slowest is the least rate at which a client has to read, in bytes per second, once the time
// of a write is over: an unread list keeps the state that it was made from.
const slowest = 16 << 10

// TooSlow reports whether a client has taken fewer than 16 KiB a second of so many bytes, apart from a
// first time.
func TooSlow(since time.Time, bytes int, first time.Duration) bool {
	return time.Since(since) > first+time.Duration(bytes)*time.Second/slowest
}

// patient is the writer of NewPatient.
type patient struct {
	w       http.ResponseWriter
	control *http.ResponseController
	each    time.Duration
	end     time.Time // of the time for all that was written; zero: before the first write
}

// NewPatient returns a writer to a client that may take its time, but not stop: it may take no
// bytes for a time, and has to read 16 KiB a second after that.
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
