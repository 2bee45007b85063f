package etcd

import (
	"errors"
	"fmt"
	"time"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
)

// Config configures a Client. Set Endpoints; Defaults gives the rest.
type Config struct {
	etcdconn.Config

	// PageBytes is the target size of a list's page, PageKeys bounds its keys, and
	// PageTimeout bounds one attempt to fetch it.
	PageBytes   int
	PageKeys    int
	PageTimeout time.Duration
	// MaxConcurrentLists bounds the lists and similar requests in flight; excess ones
	// queue. See Client.SetPermits.
	MaxConcurrentLists int
	// FreeCatchUp is the number of revisions that a watch may be behind etcd without a
	// permit. A long catch-up slows etcd's writes down.
	FreeCatchUp int
	// MaxHistory and MaxHistoryBytes bound the history that a Follow reads after a
	// list, in revisions of etcd and in bytes.
	MaxHistory      int
	MaxHistoryBytes int

	// ProgressEvery is how often etcd is asked for progress while a caller waits: etcd
	// silently drops the request while a watch is behind. ProgressCoalesce is the
	// shortest time between two requests, ProgressIdle the longest: an idle watch must
	// not fall behind compaction.
	ProgressEvery, ProgressCoalesce, ProgressIdle time.Duration
	// SilenceLimit is how long a watch may be silent while a caller waits for progress.
	// Then Follow ends with an error.
	SilenceLimit time.Duration
}

// Defaults returns the Config of a production node, without endpoints and
// logger.
func Defaults() Config {
	return Config{
		Config:             etcdconn.Defaults(),
		PageBytes:          4 << 20,
		PageKeys:           10_000,
		PageTimeout:        30 * time.Second,
		MaxConcurrentLists: 2,
		FreeCatchUp:        5_000,
		MaxHistory:         20_000,
		MaxHistoryBytes:    64 << 20,
		ProgressEvery:      100 * time.Millisecond,
		ProgressCoalesce:   10 * time.Millisecond,
		ProgressIdle:       5 * time.Second,
		SilenceLimit:       10 * time.Second,
	}
}

// Validate reports every mistake.
func (c *Config) Validate() error {
	errs := []error{c.Config.Validate()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, d := range []struct {
		name string
		got  time.Duration
	}{
		{"page timeout", c.PageTimeout},
		{"progress interval", c.ProgressEvery},
		{"progress coalescing", c.ProgressCoalesce},
		{"idle progress interval", c.ProgressIdle},
		{"silence limit", c.SilenceLimit},
	} {
		if d.got <= 0 {
			bad("%s: %v is not positive", d.name, d.got)
		}
	}
	if c.ProgressCoalesce > c.ProgressEvery {
		bad("progress coalescing (%v) must not be longer than the progress interval (%v)", c.ProgressCoalesce, c.ProgressEvery)
	}
	if c.SilenceLimit <= c.ProgressEvery {
		bad("silence limit (%v) must be longer than the progress interval (%v)", c.SilenceLimit, c.ProgressEvery)
	}
	if c.PageBytes < 1 || c.PageKeys < 1 {
		bad("pages: %d bytes and %d keys: both must be at least 1", c.PageBytes, c.PageKeys)
	}
	if c.MaxConcurrentLists < 1 {
		bad("concurrent lists: %d is below 1", c.MaxConcurrentLists)
	}
	if c.FreeCatchUp < 0 || c.MaxHistory < 0 || c.MaxHistoryBytes < 0 {
		bad("catch-ups without a permit (%d revisions), history behind a list (%d revisions, %d bytes): none may be below 0", c.FreeCatchUp, c.MaxHistory, c.MaxHistoryBytes)
	}
	return errors.Join(errs...)
}
