package etcdauth

import (
	"crypto/sha256"
	"sync"
)

// tokenID is the hash of a token. It gives no access.
type tokenID [sha256.Size]byte

func idOf(token string) tokenID { return sha256.Sum256([]byte(token)) }

// memory keeps a value for each of the at most max tokens used last.
type memory[V any] struct {
	max int

	mu sync.Mutex
	// young are the tokens used since the last rotation. When they reach half of max, they replace old, which
	// are forgotten: an approximate LRU with two maps. Invariant: no token is in both.
	young, old map[tokenID]V // guarded by mu
}

func newMemory[V any](atMost int) *memory[V] {
	return &memory[V]{max: atMost, young: make(map[tokenID]V)}
}

func (m *memory[V]) get(id tokenID) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.young[id]
	if ok {
		return v, true
	}
	if v, ok = m.old[id]; ok {
		m.putLocked(id, v)
	}
	return v, ok
}

func (m *memory[V]) put(id tokenID, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putLocked(id, v)
}

func (m *memory[V]) putLocked(id tokenID, v V) {
	delete(m.old, id)
	if _, ok := m.young[id]; !ok && len(m.young) >= max(m.max/2, 1) {
		m.old, m.young = m.young, make(map[tokenID]V)
	}
	m.young[id] = v
}

func (m *memory[V]) drop(id tokenID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.young, id)
	delete(m.old, id)
}

func (m *memory[V]) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.young) + len(m.old)
}
