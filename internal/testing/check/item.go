package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Item is one key at one revision, its value as a hash. Of a deleted key only
// Key and Mod are set.
type Item struct {
	Key string
	// Value is [HashValue] of the value.
	Value uint64
	// Create and Mod are the revisions of the key's creation and last change.
	Create, Mod kv.Revision
	// Version is the number of changes since the creation.
	Version int64
	// Lease is the lease the key is attached to; 0 for none.
	Lease int64
}

// HashValue returns the hash by which an [Item] represents a value. The same bytes give the same
// hash in every process.
func HashValue(value []byte) uint64 { return xxhash.Sum64(value) }

// ItemOf returns the item of k, without its value's bytes.
func ItemOf(k *kv.KeyValue) Item {
	return Item{
		Key: string(k.Key()), Value: HashValue(k.Value()),
		Create: k.CreateRevision(), Mod: k.ModRevision(), Version: k.Version(), Lease: k.Lease(),
	}
}

// String returns the item for people: key, revisions, and the value's hash.
func (i Item) String() string {
	return fmt.Sprintf("%q mod %d create %d version %d value %016x", i.Key, i.Mod, i.Create, i.Version, i.Value)
}

// Event is one change of one key.
type Event struct {
	Type kv.EventType
	// KV is the key after the change; of a Delete only Key and Mod.
	KV Item
	// Prev is the key before the change; nil: there was none, or it was not
	// sent.
	Prev *Item
}

// Put returns the event of a key set to i.
func Put(i Item) Event { return Event{Type: kv.Put, KV: i} }

// Delete returns the event of a key deleted at a revision.
func Delete(key string, rev kv.Revision) Event {
	return Event{Type: kv.Delete, KV: Item{Key: key, Mod: rev}}
}

// EventOf returns the event of e, without the bytes of its values.
func EventOf(e kv.Event) Event {
	out := Delete(string(e.KV.Key()), e.KV.ModRevision())
	if e.Type == kv.Put {
		out = Put(ItemOf(e.KV))
	}
	if e.Prev != nil {
		p := ItemOf(e.Prev)
		out.Prev = &p
	}
	return out
}

// same reports whether e and o are the same change, their previous values
// aside. Only key and revision of a delete mean something.
func (e Event) same(o Event) bool {
	if e.Type == kv.Delete && o.Type == kv.Delete {
		return e.KV.Key == o.KV.Key && e.KV.Mod == o.KV.Mod
	}
	return e.Type == o.Type && e.KV == o.KV
}

// String returns the event for people, its previous value aside.
func (e Event) String() string {
	if e.Type == kv.Delete {
		return fmt.Sprintf("DELETE %q at %d", e.KV.Key, e.KV.Mod)
	}
	return "PUT " + e.KV.String()
}

// Batch is all events of one revision.
type Batch struct {
	Revision kv.Revision
	Events   []Event
}

func keysOf(events []Event) string {
	keys := make([]string, len(events))
	for i, e := range events {
		keys[i] = fmt.Sprintf("%q", e.KV.Key)
	}
	const most = 5
	if len(keys) > most {
		keys = append(keys[:most], fmt.Sprintf("and %d more", len(keys)-most))
	}
	return strings.Join(keys, " ")
}

func sortByKey(items []Item) {
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Key, b.Key) })
}
