package api

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/port"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// answer is a request that is being answered.
type answer struct {
	s    *Server
	f    *feed
	q    *request
	kind source.Kind
	// client is charged for the memory that the answer takes.
	client budget.Client
}

// read answers a list or a get.
func (a *answer) read(ctx context.Context, w http.ResponseWriter) error {
	if a.q.name != "" {
		return a.get(w)
	}
	state, err := a.state(ctx)
	if err != nil {
		return err
	}
	held, err := a.s.cfg.Budget.Reserve(ctx, a.client, budget.Lists, a.listBytes(state.Len()))
	if err != nil {
		return object.Later(err)
	}
	defer held.Release()
	keys := a.f.r.InNamespace(a.q.namespace)
	keys.Start = max(keys.Start, a.q.next)
	meta := object.ListMeta{APIVersion: a.kind.APIVersion, Kind: a.kind.Kind + "List", ResourceVersion: strconv.FormatInt(int64(state.Revision), 10)}
	if a.q.form.partial {
		meta.APIVersion, meta.Kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	var items [][]byte
	step, end := a.s.cfg.Turns.Every(ctx, a.client.Name, perTurn)
	defer end()
	err = a.each(state, keys, step, func(key []byte, o *object.Object) (bool, error) {
		if a.q.limit > 0 && len(items) == a.q.limit {
			meta.Continue = continueAt(state.Revision, key)
			if a.q.selector.Everything() { // apiservers do not count with a selector either
				meta.Remaining = int64(state.Count(kv.Range{Start: string(key), End: keys.End}))
			}
			return false, nil
		}
		if a.q.form.partial {
			items = append(items, o.PartialItem())
		} else {
			items = append(items, o.Item())
		}
		return true, nil
	})
	if end(); err != nil {
		return err
	}
	w.Header().Set("Content-Type", a.f.r.Encoding.MediaType())
	out := bufio.NewWriterSize(port.NewPatient(w, writeTime), listBuffer)
	if err := object.WriteList(out, a.f.r.Encoding, meta, items); err == nil {
		_ = out.Flush() // the client may have gone
	}
	return nil
}

const (
	// listBuffer is the size of the writes of a list, in bytes.
	listBuffer = 64 << 10
	// itemBytes is the memory of a list per object. The bytes of objects are shared with the cache.
	itemBytes = 32
)

// listBytes returns the most memory that a list of that many objects takes.
func (a *answer) listBytes(objects int) int64 {
	if a.q.limit > 0 {
		objects = min(objects, a.q.limit)
	}
	return listBuffer + int64(objects)*itemBytes
}

// perTurn is the number of objects that a list reads in a turn.
const perTurn = 32

// each calls step for each object of a range, and then fn if the object matches the selector,
// until fn returns false.
func (a *answer) each(state *keytree.Snapshot, keys kv.Range, step func() error, fn func(key []byte, o *object.Object) (bool, error)) (err error) {
	read := object.Parse
	if a.q.selector.Everything() && !a.q.form.partial {
		read = object.Whole
	}
	state.Ascend(keys, func(item *kv.KeyValue) bool {
		var o object.Object
		if err = step(); err != nil {
			return false
		}
		if o, err = read(a.f.r.Encoding, item.Value()); err != nil {
			return false
		}
		if !a.q.selector.Matches(&o) {
			return true
		}
		var more bool
		more, err = fn(item.Key(), &o)
		return more && err == nil
	})
	return err
}

// get answers a get that need not be newer than the cache. If the cache lacks the object, an
// apiserver answers: the object may have been created since.
func (a *answer) get(w http.ResponseWriter) error {
	if a.q.version > a.f.cache.Progress() {
		return errUpstream
	}
	state, err := a.f.cache.At(context.Background(), 0)
	if err != nil {
		return err
	}
	item := state.Get(a.f.r.Key(a.q.namespace, a.q.name))
	if item == nil {
		return errUpstream
	}
	body := item.Value()
	if a.q.form.partial {
		o, err := object.Parse(a.f.r.Encoding, body)
		if err != nil {
			return err
		}
		body = o.Partial()
	}
	w.Header().Set("Content-Type", a.f.r.Encoding.MediaType())
	if a.f.r.Encoding == object.JSON {
		body = append(slices.Clip(body), '\n')
	}
	_, _ = w.Write(body) // the client may have gone
	return nil
}

// state returns the state for a list.
func (a *answer) state(ctx context.Context) (*keytree.Snapshot, error) {
	want, exact := a.q.version, kv.Revision(0)
	switch {
	case a.q.exact, a.q.chunked:
		exact = want
	case a.q.unset:
		var err error
		if want, err = a.current(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.waitProgress(ctx, want); err != nil {
		switch {
		case errors.Is(err, cache.ErrRetired), errors.Is(err, errUpstream):
			return nil, err
		case a.q.unset:
			return nil, errUpstream
		}
		return nil, tooLarge(want, a.f.cache.Progress())
	}
	state, err := a.f.cache.At(ctx, exact)
	if _, ok := errors.AsType[*kv.CompactedError](err); ok {
		if a.q.chunked {
			return nil, expired(want, continueAt(-1, []byte(a.q.next)))
		}
		return nil, errUpstream
	}
	return state, err
}

// current returns the newest version of the resource, as an apiserver reads it from etcd. If the
// cache is ahead of it, etcd was restored: the feed ends, and an apiserver answers. A watch from the
// cache's version would not detect the restore.
//
// A refusal applies to this node, not to the client: an apiserver answers the client's own request.
// After any other failure the client retries.
func (a *answer) current(ctx context.Context) (kv.Revision, error) {
	before := a.f.cache.Progress()
	now, err := a.s.cfg.Source.Current(ctx, a.f.r)
	switch {
	case err != nil && !source.MayFollow(err):
		return 0, errUpstream
	case err != nil:
		return 0, object.Later(err)
	case now < before:
		a.s.feeds.otherHistory(a.f, fmt.Errorf("an apiserver is at version %d, and was at %d", now, before))
		return 0, errUpstream
	}
	return now, nil
}

// waitProgress waits until the cache has a version. Apiservers send no bookmarks for Events that
// would show progress: an apiserver answers if the cache is older.
func (a *answer) waitProgress(ctx context.Context, want kv.Revision) error {
	if a.f.r.IsEvents() && a.f.cache.Progress() < want {
		return errUpstream
	}
	return a.f.cache.WaitProgress(ctx, want)
}

// position is the content of a continue token. Version -1 continues at the newest version: it is in
// the tokens that replace expired ones.
type position struct {
	Tier    int         `json:"shardwatch"` // the version of the token format
	Version kv.Revision `json:"rv"`
	Key     string      `json:"key"`
}

func continueAt(version kv.Revision, key []byte) string {
	b, err := json.Marshal(position{1, version, string(key)})
	if err != nil { // impossible: numbers and a string
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseContinue reads a continue token. It returns false for tokens of apiservers.
func (q *request) parseContinue(token string) bool {
	b, err := base64.RawURLEncoding.DecodeString(token)
	var p position
	if err != nil || json.Unmarshal(b, &p) != nil || p.Tier != 1 || p.Version < -1 || p.Version == 0 {
		return false
	}
	q.chunked, q.unset = p.Version > 0, p.Version < 0
	q.version, q.next = max(0, p.Version), p.Key
	return true
}
