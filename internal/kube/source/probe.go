package source

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
)

const (
	// probeTime is the timeout of a probe's watch. An apiserver sends a bookmark two
	// seconds before the end of a watch (bookmarkFrequency and nextBookmarkTime in
	// k8s.io/apiserver/pkg/storage/cacher).
	probeTime = 4 * time.Second
	// probeWithin bounds the time that an apiserver takes to begin a probe, and then the time of its watch.
	probeWithin = 5 * time.Second
	// probeAgain is the pause after a probe that has failed, or made no progress.
	probeAgain = time.Second
	// probeFails is the number of failed probes in a row after which other apiservers are probed.
	probeFails = 3
)

// errBehind reports that an apiserver does not answer probes, but another one does. The first may have
// lost its connection to etcd: its watch then stays open without events.
var errBehind = errors.New("another apiserver answers")

// prober runs probes, one at a time: short watches after the last emitted event. The bookmark of a
// probe is progress of the resource. There is no other way to get a bookmark at once: on a quiet
// resource the main watch gets one after a minute.
//
// A probe runs beside the main watch. If it hangs or fails, for example because the apiserver is overloaded, the
// main watch continues, unless another apiserver answers.
type prober struct {
	f       *follower
	to      chan<- arrival
	running *sync.WaitGroup

	// Owned by run.
	now   *watch             // the probe; nil: none runs
	after kv.Revision        // the version after which the probe begins
	end   context.CancelFunc // ends the probe
	pause <-chan time.Time   // has a value when the next probe may begin; nil: now
	fails int                // failed probes in a row
}

// start begins a probe if the consumer waits for progress.
func (p *prober) start(ctx context.Context) {
	if p.now != nil || p.pause != nil || !p.f.wants() {
		return
	}
	ctx, p.end = context.WithCancel(ctx)
	w, after, last := &watch{}, p.f.at, p.fails >= probeFails-1
	p.now, p.after = w, after
	p.running.Go(func() { p.f.probe(ctx, w, after, last, p.to) })
}

// arrived handles an event or error of a probe. It fails if the main watch has to end.
func (p *prober) arrived(a arrival) error {
	if a.from != p.now {
		return nil // of an earlier probe, which was ended
	}
	err := a.err
	if err == nil {
		err = p.f.take(a.event)
		switch a.event.Type {
		case object.Error:
		case object.Bookmark: // the only one: the apiserver closes the watch two seconds later
			p.ended(true)
			return err
		default:
			return err
		}
	}
	if CodeOf(err) != 0 && !MayFollow(err) || errors.Is(err, errBehind) {
		return err
	}
	over := errors.Is(err, errEnded)
	if !over {
		p.f.s.c.cfg.Logger.Debug("probe failed", "resource", p.f.s.r.String(), "error", err)
	}
	p.ended(over)
	return nil
}

// ended ends the probe. The next one may begin at once if the probe was successful and made progress.
func (p *prober) ended(well bool) {
	p.end()
	if p.fails++; well {
		p.fails = 0
	}
	if p.now = nil; !well || p.f.at == p.after {
		p.pause = time.After(probeAgain)
	}
}

// probe runs a probe, and sends its events and its failure until ctx ends. If last is set and the probe fails, it
// probes the other apiservers.
func (f *follower) probe(ctx context.Context, w *watch, after kv.Revision, last bool, to chan<- arrival) {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := time.AfterFunc(probeWithin, cancel)
	defer limit.Stop()
	opened, err := f.openProbe(limited, after)
	if err == nil {
		limit.Reset(probeWithin)
		*w = *opened
		w.read(ctx, to)
		return
	}
	if limited.Err() != nil {
		err = fmt.Errorf("%s: no answer within %v", f.server, probeWithin)
	}
	if last && f.othersAnswer(ctx) {
		err = fmt.Errorf("%w: %w", errBehind, err)
	}
	select {
	case to <- arrival{from: w, err: err}:
	case <-ctx.Done():
	}
}

// openProbe begins the watch of a probe. The list before it makes this apiserver read the version from etcd:
// its bookmarks do not exceed the version of its cache, and other apiservers write to etcd, too.
func (f *follower) openProbe(ctx context.Context, after kv.Revision) (*watch, error) {
	if _, _, err := f.s.c.list(ctx, f.server, f.s.r, url.Values{"limit": {"1"}}); err != nil {
		return nil, err
	}
	return f.watch(ctx, after, probeTime)
}

// othersAnswer reports whether another apiserver reads the resource from etcd.
func (f *follower) othersAnswer(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	servers := slices.DeleteFunc(f.s.c.Servers(), func(server string) bool { return server == f.server })
	for i, server := range servers {
		if askOne(ctx, len(servers)-i, server, func(ctx context.Context, server string) error {
			_, err := f.s.c.currentAt(ctx, server, f.s.r)
			return err
		}) == nil {
			return true
		}
	}
	return false
}
