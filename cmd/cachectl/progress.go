package main

import (
	"fmt"
	"io"
	"time"
)

// progressEvery is how often long work tells how far it is.
const progressEvery = 2 * time.Second

// progress tells a person how far long work is; of short work it says nothing.
type progress struct {
	w    io.Writer
	told time.Time
}

func newProgress(w io.Writer) *progress { return &progress{w: w, told: time.Now()} }

// tell prints how far the work is, unless it did a moment ago.
func (p *progress) tell(now time.Time, format string, args ...any) {
	if now.Sub(p.told) < progressEvery {
		return
	}
	p.told = now
	fmt.Fprintf(p.w, "cachectl: "+format+"\n", args...)
}
