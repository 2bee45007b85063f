package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// pageItems is the number of items in a page of a list.
const pageItems = 500

// watch begins a watch after a version; a timeout above 0 ends it.
func (f *follower) watch(ctx context.Context, after kv.Revision, timeout time.Duration) (*watch, error) {
	query := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {strconv.FormatInt(int64(after), 10)}}
	if timeout > 0 {
		query.Set("timeoutSeconds", strconv.Itoa(int(timeout.Seconds())))
	}
	return f.open(ctx, query)
}

func (f *follower) open(ctx context.Context, query url.Values) (*watch, error) {
	resp, err := f.s.c.get(ctx, f.server, f.s.r, query) //nolint:bodyclose // the watch closes it
	if err != nil {
		return nil, err
	}
	return &watch{body: resp.Body, frames: object.NewFrames(f.s.r.Encoding, resp.Body, f.s.c.cfg.MaxEventBytes)}, nil
}

// load lists, emits the state, and returns the watch that continues after it.
func (f *follower) load(ctx context.Context) (*watch, error) {
	w, items, err := f.stream(ctx)
	switch CodeOf(err) {
	case http.StatusBadRequest, http.StatusUnprocessableEntity: // the apiserver does not stream lists
		f.s.c.cfg.Logger.Info("apiserver does not stream lists: listing in pages", "server", f.server, "resource", f.s.r.String(), "error", err)
		if items, err = f.pages(ctx); err != nil {
			return nil, err
		}
		if w, err = f.watch(ctx, f.at, 0); err != nil {
			return nil, err
		}
	default:
		if err != nil {
			return nil, err
		}
	}
	if err := f.emitState(items); err != nil {
		_ = w.body.Close()
		return nil, err
	}
	return w, nil
}

// stream lists with a watch that sends the state as its first events, up to a
// bookmark. Concurrent changes also precede the bookmark.
func (f *follower) stream(ctx context.Context) (*watch, []*kv.KeyValue, error) {
	w, err := f.open(ctx, url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
	})
	if err != nil {
		return nil, nil, err
	}
	state := map[string]*kv.KeyValue{}
	for {
		e, err := w.frames.Next()
		if errors.Is(err, io.EOF) {
			err = errEnded
		}
		ended := false
		if err == nil {
			ended, err = f.initial(e, state)
		}
		switch {
		case err != nil:
			_ = w.body.Close()
			return nil, nil, err
		case ended:
			return w, slices.Collect(maps.Values(state)), nil
		}
	}
}

// initial applies an event to a state that is being read, and reports whether
// the state is complete.
func (f *follower) initial(e object.Event, state map[string]*kv.KeyValue) (ended bool, err error) {
	switch e.Type {
	case object.Bookmark:
		o, err := object.Parse(f.s.r.Encoding, e.Object)
		if err != nil || !endsInitialEvents(&o) {
			return false, err
		}
		version, err := o.Version()
		f.at = kv.Revision(version)
		f.s.SetKind(Kind{string(o.APIVersion), string(o.Kind)})
		return true, err
	case object.Added, object.Modified, object.Deleted:
		item, err := f.s.r.item(e.Object)
		if err != nil {
			return false, err
		}
		if e.Type == object.Deleted {
			delete(state, string(item.Key()))
		} else {
			state[string(item.Key())] = item
		}
		return false, nil
	}
	return false, f.take(e)
}

func endsInitialEvents(o *object.Object) bool {
	for k, v := range o.Annotations() {
		if string(k) == object.InitialEventsEnd && string(v) == "true" {
			return true
		}
	}
	return false
}

// pages lists in pages, at one version.
func (f *follower) pages(ctx context.Context) (items []*kv.KeyValue, err error) {
	query := url.Values{"limit": {strconv.Itoa(pageItems)}}
	for {
		meta, page, err := f.s.c.list(ctx, f.server, f.s.r, query)
		if err != nil {
			return nil, err
		}
		if f.at, err = versionOf(meta.ResourceVersion); err != nil {
			return nil, err
		}
		kind := kindOf(&meta)
		f.s.SetKind(kind)
		for _, part := range page {
			raw, err := object.FromItem(f.s.r.Encoding, kind.APIVersion, kind.Kind, part)
			if err != nil {
				return nil, err
			}
			item, err := f.s.r.item(raw)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		if meta.Continue == "" {
			return items, nil
		}
		query.Set("continue", meta.Continue)
	}
}

// emitState emits the state at f.at, or its difference from the state that the
// consumer holds.
func (f *follower) emitState(items []*kv.KeyValue) error {
	slices.SortFunc(items, func(a, b *kv.KeyValue) int { return bytes.Compare(a.Key(), b.Key()) })
	begin := kv.Update{Kind: kv.UpdateBegin, Revision: f.at, Floor: f.at + 1}
	state := kv.Update{Kind: kv.UpdateState, Revision: f.at, KVs: items}
	if f.req.Held != nil {
		if f.at < f.req.HeldAt {
			return f.older(f.at, f.req.HeldAt)
		}
		begin.Leap = true
		state.KVs, state.Gone = f.differs(items)
	}
	f.moved = true
	for _, u := range []kv.Update{begin, state, {Kind: kv.UpdateReady}} {
		if err := f.emit(u); err != nil {
			return err
		}
	}
	return nil
}

// differs returns the items whose version the consumer does not hold, and the
// held keys that are gone. Both are in key order.
func (f *follower) differs(items []*kv.KeyValue) (changed []*kv.KeyValue, gone []string) {
	var before []*kv.KeyValue
	next := 0
	for held := range f.req.Held {
		for next < len(items) && bytes.Compare(items[next].Key(), held.Key()) < 0 {
			changed = append(changed, items[next])
			next++
		}
		if next == len(items) || !bytes.Equal(items[next].Key(), held.Key()) {
			before = append(before, held)
			gone = append(gone, string(held.Key()))
			continue
		}
		if items[next].ModRevision() != held.ModRevision() {
			before = append(before, held)
			changed = append(changed, items[next])
		}
		next++
	}
	f.s.gap(f.req.HeldAt, f.at, before)
	return append(changed, items[next:]...), gone
}
