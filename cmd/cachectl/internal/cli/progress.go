package cli

import (
	"fmt"
	"io"
	"time"
)

// progressEvery is how often long work tells how far it is.
const progressEvery = 2 * time.Second

// Progress tells a person how far long work is; of short work it says nothing.
type Progress struct {
	w    io.Writer
	told time.Time
}

// NewProgress returns what tells of work that begins now.
func NewProgress(w io.Writer) *Progress { return &Progress{w: w, told: time.Now()} }

// Tell prints how far the work is, unless it did a moment ago.
func (p *Progress) Tell(now time.Time, format string, args ...any) {
	if now.Sub(p.told) < progressEvery {
		return
	}
	p.told = now
	fmt.Fprintf(p.w, "cachectl: "+format+"\n", args...)
}
