package cli

import (
	"fmt"
	"io"
	"time"
)

// progressEvery is the interval at which long work reports its progress.
const progressEvery = 2 * time.Second

// Progress reports the progress of work that takes longer than progressEvery.
type Progress struct {
	w    io.Writer
	told time.Time
}

// NewProgress returns the progress of work that begins now.
func NewProgress(w io.Writer) *Progress { return &Progress{w: w, told: time.Now()} }

// Tell prints the progress, unless it did so within progressEvery.
func (p *Progress) Tell(now time.Time, format string, args ...any) {
	if now.Sub(p.told) < progressEvery {
		return
	}
	p.told = now
	fmt.Fprintf(p.w, "cachectl: "+format+"\n", args...)
}
