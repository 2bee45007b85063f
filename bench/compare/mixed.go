package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

const (
	// mixedWrites is the number of keys written per second, mixedKeys the number of keys to get and
	// to list.
	mixedWrites = 50
	mixedKeys   = 1_000
	// A client like kube-apiserver gets keys and lists them page by page; a dashboard lists them in
	// one request.
	mixedGetEvery  = 50 * time.Millisecond
	mixedListEvery = time.Second
)

// mixedLoads are several kinds of clients at the same time.
func mixedLoads(c *config) []load {
	return []load{{
		name: "mixed", sides: etcdSides(), standard: true, run: mixed,
		setup: setup{keys: 2 * mixedKeys, size: c.sizes[0], key: func(i int) string {
			if i%2 == 0 {
				return everywhere().key(i / 2)
			}
			return keyName(i / 2)
		}},
	}}
}

// mixed runs a client like kube-apiserver, with a watch of each directory on one stream, gets and
// lists; agents with a watch of one directory each and separate connections; and a dashboard that
// watches everything and lists it periodically.
func mixed(ctx context.Context, t *trial) error {
	of := func(mode, what string, watches int) shape {
		return shape{mode: mode, what: what, watches: watches, size: t.sizes[0]}
	}
	agents := of(modeConnection, whatFolder, max(1, t.watches[0]/5))
	events := max(1, int(t.deliver.Seconds()*mixedWrites))
	quiet, _, err := t.unwatched(ctx, agents, max(1, events/2), mixedWrites)
	if err != nil {
		return err
	}
	var all []*audience
	for _, sh := range []shape{agents, of(modeShared, whatFolder, agents.groups()), of(modeConnection, whatPrefix, 1)} {
		a, err := t.audience(ctx, sh, events)
		if err != nil {
			return err
		}
		defer a.close()
		if len(all) > 0 { // all audiences watch the writes of the first
			a.acked, a.began = all[0].acked, all[0].began
		}
		all = append(all, a)
	}
	if err := pause(ctx, t.rest/2); err != nil {
		return err
	}
	before, err := t.side.used()
	if err != nil {
		return err
	}
	puts, gets, err := t.amongReads(ctx, all)
	if err != nil {
		return err
	}
	spent, err := t.side.since(before)
	if err != nil {
		return err
	}
	wall := spent.wall.Seconds()
	base := 2 * quiet.all.Seconds() // it had half of the writes
	t.note("share of a core, all processes", unitShare, spent.all.Seconds()/wall)
	t.note(figureAbove, unitShare, (spent.all.Seconds()-base)/wall)
	t.note(figurePut, unitTime, puts.quantile(0.5).Seconds())
	t.note("get p50", unitTime, gets.quantile(0.5).Seconds())
	t.note("get p99", unitTime, gets.quantile(0.99).Seconds())
	return t.noteLatency(ctx, all[0])
}

// amongReads writes the events of the first audience, which all audiences watch, during gets and
// lists, and returns the durations of puts and gets.
func (t *trial) amongReads(ctx context.Context, all []*audience) (puts, gets *histogram, err error) {
	profiled, err := t.profiled()
	if err != nil {
		return nil, nil, err
	}
	defer profiled()
	g, gctx := errgroup.WithContext(ctx)
	reading, watched := context.WithCancel(gctx)
	defer watched()
	g.Go(func() error {
		defer watched()
		events, ectx := errgroup.WithContext(gctx)
		events.Go(func() (err error) { puts, err = t.write(ectx, all[0], mixedWrites); return err })
		for _, a := range all {
			context.AfterFunc(ectx, a.close) // after an error no client waits for further events
			events.Go(func() error { return a.read(ectx) })
		}
		return events.Wait()
	})
	gets = new(histogram)
	every := func(d time.Duration, f func(conn *grpc.ClientConn, i int) error) {
		g.Go(func() error { return t.every(reading, d, f) })
	}
	every(mixedGetEvery, func(conn *grpc.ClientConn, i int) error {
		began := time.Now()
		err := get(gctx, conn, linearizable, keyName(i*7919%mixedKeys))
		gets.add(time.Since(began), 1)
		return err
	})
	every(mixedListEvery, func(conn *grpc.ClientConn, _ int) error { return list(gctx, conn, paged, mixedKeys, t.page) })
	every(mixedListEvery, func(conn *grpc.ClientConn, _ int) error { return list(gctx, conn, serializable, mixedKeys, 0) })
	err = g.Wait()
	return puts, gets, err
}

// every calls f at intervals, with a separate connection, until ctx ends.
func (t *trial) every(ctx context.Context, d time.Duration, f func(conn *grpc.ClientConn, i int) error) (err error) {
	conn, err := t.side.dial(t.side.ends[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	start := time.Now()
	for i := 0; pause(ctx, time.Until(start.Add(time.Duration(i)*d))) == nil; i++ {
		if err := f(conn, i); err != nil {
			return err
		}
	}
	return nil
}
