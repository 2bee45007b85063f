package cache

import (
	"bytes"
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// agree fails with kv.ErrOtherHistory when what h says has happened cannot have
// led to a state as of revision: etcd was restored since.
func (h *History) agree(state *tree, revision kv.Revision) error {
	upTo := min(h.Progress, revision)
	last := make(map[string]*kv.Event) // the newest that happened to a key
	for _, b := range h.Batches {
		if b.Revision > upTo {
			break
		}
		for i := range b.Events {
			last[string(b.Events[i].KV.Key())] = &b.Events[i]
		}
	}
	var err error
	state.Scan(func(item *kv.KeyValue) bool {
		e := last[string(item.Key())]
		delete(last, string(item.Key()))
		switch at := item.ModRevision(); {
		case at > upTo: // changed since
		case e == nil && at < h.Floor:
		case e == nil:
			err = fmt.Errorf("%w: %q is there as of revision %d, and nothing happened to it from %d to %d", kv.ErrOtherHistory, item.Key(), at, h.Floor, upTo)
		case e.Type == kv.Delete || e.KV.ModRevision() != at:
			err = fmt.Errorf("%w: %q is there as of revision %d, and its last change up to %d was the %v at %d", kv.ErrOtherHistory, item.Key(), at, upTo, e.Type, e.KV.ModRevision())
		case !bytes.Equal(e.KV.Encoded(), item.Encoded()):
			err = fmt.Errorf("%w: %q has two contents as of revision %d", kv.ErrOtherHistory, item.Key(), at)
		}
		return err == nil
	})
	if err != nil || revision > h.Progress {
		return err // what is missing may have been deleted since
	}
	for key, e := range last {
		if e.Type == kv.Put {
			return fmt.Errorf("%w: %q was put at revision %d, and is not there at %d", kv.ErrOtherHistory, key, e.KV.ModRevision(), revision)
		}
	}
	return nil
}
