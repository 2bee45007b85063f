package guard

import (
	"container/list"
	"sync"
	"time"
)

// memory keeps answers of apiservers, bounded in bytes. It evicts the least recently used
// answers first.
type memory[V any] struct {
	maxBytes int64

	mu     sync.Mutex
	bytes  int64                 // guarded by mu
	byKey  map[key]*list.Element // guarded by mu
	recent *list.List            // guarded by mu; of *entry[V], the most recently used first
}

type entry[V any] struct {
	key   key
	value V
	at    time.Time // of the answer
	size  int64
}

// overhead is the memory of an entry without its value, in bytes.
const overhead = 256

func newMemory[V any](maxBytes int64) *memory[V] {
	return &memory[V]{maxBytes: maxBytes, byKey: map[key]*list.Element{}, recent: list.New()}
}

// get returns an answer and its time.
func (m *memory[V]) get(k key) (value V, at time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	element := m.byKey[k]
	if element == nil {
		return value, at, false
	}
	m.recent.MoveToFront(element)
	e := element.Value.(*entry[V]) //nolint:forcetypeassert // all are
	return e.value, e.at, true
}

func (m *memory[V]) put(k key, value V, at time.Time, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropLocked(m.byKey[k])
	e := &entry[V]{k, value, at, overhead + size}
	if e.size > m.maxBytes {
		return
	}
	m.byKey[k] = m.recent.PushFront(e)
	for m.bytes += e.size; m.bytes > m.maxBytes; {
		m.dropLocked(m.recent.Back())
	}
}

func (m *memory[V]) drop(k key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropLocked(m.byKey[k])
}

func (m *memory[V]) dropLocked(element *list.Element) {
	if element == nil {
		return
	}
	e := m.recent.Remove(element).(*entry[V]) //nolint:forcetypeassert // all are
	delete(m.byKey, e.key)
	m.bytes -= e.size
}

// held returns the size of all entries in bytes.
func (m *memory[V]) held() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}
