package main

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts durations in buckets with a width of at most 1/32 of their value. Any number of
// goroutines may add to it. The zero value is empty.
type histogram struct {
	counts [histogramBuckets]atomic.Int64
}

const (
	histogramBits    = 5 // bits of a value that select its bucket, besides the highest
	histogramBuckets = (64 - histogramBits + 1) << histogramBits
)

// add counts a duration n times; a negative duration counts as 0.
func (h *histogram) add(d time.Duration, n int64) {
	v := uint64(max(d, 0))
	e := max(0, bits.Len64(v)-histogramBits-1)
	h.counts[e<<histogramBits+int(v>>e)].Add(n)
}

// total returns the number of counted durations.
func (h *histogram) total() (n int64) {
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// quantile returns the upper bound of the bucket with quantile q, or 0 without durations.
func (h *histogram) quantile(q float64) time.Duration {
	all := h.total()
	left := int64(q*float64(all) + 0.5)
	for i := range h.counts {
		if left -= h.counts[i].Load(); left <= 0 && all > 0 {
			e := max(0, i>>histogramBits-1)
			return time.Duration(i-e<<histogramBits+1)<<e - 1
		}
	}
	return 0
}

// merge adds the counts of another histogram.
func (h *histogram) merge(other *histogram) {
	for i := range other.counts {
		h.counts[i].Add(other.counts[i].Load())
	}
}
