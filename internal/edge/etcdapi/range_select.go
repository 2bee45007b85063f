package etcdapi

import (
	"bytes"
	"context"
	"math"
	"sort"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// selection applies a request's filters, order and limit. It follows etcd's txn/range.go.
type selection struct {
	r *etcdserverpb.RangeRequest
}

func selectionOf(r *etcdserverpb.RangeRequest) selection { return selection{r} }

// inOrder reports whether the limit applies to the keys in key order, without a sort. It does
// for order NONE with every target. With a target other than the key, etcd treats NONE as ASCEND
// after the limit, and sorts only the keys within the limit.
func (s selection) inOrder() bool {
	order := s.r.GetSortOrder()
	return order == etcdserverpb.RangeRequest_NONE ||
		s.r.GetSortTarget() == etcdserverpb.RangeRequest_KEY && order == etcdserverpb.RangeRequest_ASCEND
}

// filtered reports whether keys are filtered by their revisions.
func (s selection) filtered() bool {
	return s.r.GetMinModRevision() != 0 || s.r.GetMaxModRevision() != 0 ||
		s.r.GetMinCreateRevision() != 0 || s.r.GetMaxCreateRevision() != 0
}

// sorted returns the order in which the keys are sorted; NONE: not sorted.
func (s selection) sorted() etcdserverpb.RangeRequest_SortOrder {
	order := s.r.GetSortOrder()
	if s.r.GetSortTarget() != etcdserverpb.RangeRequest_KEY {
		if order == etcdserverpb.RangeRequest_NONE {
			order = etcdserverpb.RangeRequest_ASCEND
		}
		return order
	}
	if order == etcdserverpb.RangeRequest_ASCEND {
		order = etcdserverpb.RangeRequest_NONE
	}
	return order
}

// form returns the form of the keys in the answer. Without values etcd reads its index,
// which has no leases, unless it needs the values for the order.
func (s selection) form() wire.ItemForm {
	switch {
	case !s.r.GetKeysOnly():
		return wire.WholeItem
	case s.r.GetSortTarget() == etcdserverpb.RangeRequest_VALUE:
		return wire.KeyLeaseItem
	}
	return wire.KeyItem
}

// turnKeys is the number of keys that a list examines or compares between two turns: about 0.05 ms.
const turnKeys = 1000

// foundBytes is the memory of a list for each selected key, in bytes: a pointer, twice while the slice
// grows.
const foundBytes = 16

// scan adds the selected keys to l, in the requested order. It returns the number of
// keys in the range, selected or not, and whether more keys are selected than the
// limit.
//
// To sort or filter, all keys are examined before the first one is added. That takes turns, too, so that only
// the lists that have a turn keep more than turnKeys keys. A list ends its turn while it waits for another
// node, so its keys then count against the budget. If the budget is exhausted, etcd sorts.
func (s selection) scan(ctx context.Context, reading *router.Reading, l *list) (count int64, more bool, err error) {
	limit := max(0, s.r.GetLimit())
	o := router.ScanOptions{KeysOnly: s.form() == wire.KeyItem, Waits: l.rest}
	switch {
	case s.r.GetCountOnly():
		count, err = reading.Count(ctx)
		return count, false, err
	case !s.filtered() && s.sorted() == etcdserverpb.RangeRequest_NONE:
		o.Limit = limit
		count, err = reading.Scan(ctx, o, l.add)
		return count, limit > 0 && count > limit, err
	case s.inOrder() && !s.filtered() && limit > 0 && limit < math.MaxInt64:
		o.Limit = limit + 1
	}
	var found []*kv.KeyValue
	looked := 0
	o.Fetched = func(item *kv.KeyValue) error {
		if !s.keeps(item) {
			return nil
		}
		return l.keep(len(item.Encoded()))
	}
	place := foundBytes
	if reading.Here() {
		place = 0 // the list keeps its turn
	}
	count, err = reading.Scan(ctx, o, func(item *kv.KeyValue) (err error) {
		if looked++; looked%turnKeys == 0 {
			err = l.turn()
		}
		if err != nil || !s.keeps(item) {
			return err
		}
		found = append(found, item)
		return l.keep(place)
	})
	if err == nil {
		err = s.sort(found, l.turn)
	}
	if err != nil {
		return 0, false, err
	}
	if more = limit > 0 && int64(len(found)) > limit; more {
		found = found[:limit]
	}
	for _, item := range found {
		if err := l.add(item); err != nil {
			return 0, false, err
		}
	}
	return count, more, nil
}

// keeps reports whether the item passes the filters.
func (s selection) keeps(item *kv.KeyValue) bool {
	mod, create := int64(item.ModRevision()), int64(item.CreateRevision())
	return (s.r.GetMaxModRevision() == 0 || mod <= s.r.GetMaxModRevision()) &&
		(s.r.GetMinModRevision() == 0 || mod >= s.r.GetMinModRevision()) &&
		(s.r.GetMaxCreateRevision() == 0 || create <= s.r.GetMaxCreateRevision()) &&
		(s.r.GetMinCreateRevision() == 0 || create >= s.r.GetMinCreateRevision())
}

// sort sorts as etcd does, including ties: it uses the same algorithm on the same
// input, which is in key order. It calls turn after each turnKeys comparisons, and returns its first error.
func (s selection) sort(items []*kv.KeyValue, turn func() error) error {
	by := &sorter{items: items, turn: turn}
	switch s.r.GetSortTarget() {
	case etcdserverpb.RangeRequest_KEY:
		by.less = func(a, b *kv.KeyValue) bool { return bytes.Compare(a.Key(), b.Key()) < 0 }
	case etcdserverpb.RangeRequest_VERSION:
		by.less = func(a, b *kv.KeyValue) bool { return a.Version() < b.Version() }
	case etcdserverpb.RangeRequest_CREATE:
		by.less = func(a, b *kv.KeyValue) bool { return a.CreateRevision() < b.CreateRevision() }
	case etcdserverpb.RangeRequest_MOD:
		by.less = func(a, b *kv.KeyValue) bool { return a.ModRevision() < b.ModRevision() }
	case etcdserverpb.RangeRequest_VALUE:
		by.less = func(a, b *kv.KeyValue) bool { return bytes.Compare(a.Value(), b.Value()) < 0 }
	}
	switch s.sorted() {
	case etcdserverpb.RangeRequest_ASCEND:
		sort.Sort(by)
	case etcdserverpb.RangeRequest_DESCEND:
		sort.Sort(sort.Reverse(by))
	case etcdserverpb.RangeRequest_NONE:
	}
	return by.err
}

// sorter is a sort.Interface: package slices orders ties differently.
type sorter struct {
	items []*kv.KeyValue
	turn  func() error
	n     int   // comparisons
	err   error // the first one of turn
	less  func(a, b *kv.KeyValue) bool
}

func (s *sorter) Len() int { return len(s.items) }

func (s *sorter) Less(i, j int) bool {
	if s.n++; s.n%turnKeys == 0 && s.err == nil {
		s.err = s.turn()
	}
	return s.less(s.items[i], s.items[j])
}

func (s *sorter) Swap(i, j int) { s.items[i], s.items[j] = s.items[j], s.items[i] }
