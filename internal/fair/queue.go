package fair

import "slices"

// Queue is the queue. The zero Queue is empty. One goroutine at a time may use it.
type Queue[T any] struct {
	turns  []string // the clients that have entries, in turn
	queues map[string][]*Entry[T]
	length int // of all queues
	gone   int // removed entries that are still in them
}

// Entry is one that waits.
type Entry[T any] struct {
	value  T
	queued bool // neither popped nor removed
}

// Push appends an entry of a client. The name is that of all its connections: one that
// opens more of them has no more turns.
func (q *Queue[T]) Push(client string, value T) *Entry[T] {
	if q.queues == nil {
		q.queues = make(map[string][]*Entry[T])
	}
	if len(q.queues[client]) == 0 {
		q.turns = append(q.turns, client)
	}
	e := &Entry[T]{value: value, queued: true}
	q.queues[client] = append(q.queues[client], e)
	q.length++
	return e
}

// Len returns how many entries wait.
func (q *Queue[T]) Len() int { return q.length - q.gone }

// Pop takes the next entry; false when none waits.
func (q *Queue[T]) Pop() (value T, ok bool) {
	for len(q.turns) > 0 && !ok {
		client := q.turns[0]
		q.turns = q.turns[1:]
		list := q.queues[client]
		for len(list) > 0 && !ok {
			e := list[0]
			list[0] = nil
			list = list[1:]
			q.length--
			if ok = e.queued; !ok {
				q.gone--
				continue
			}
			value, e.queued = e.value, false
			e.forget()
		}
		if len(list) == 0 {
			delete(q.queues, client)
			continue
		}
		q.queues[client] = list
		q.turns = append(q.turns, client)
	}
	return value, ok
}

// Peek returns the next entry and leaves it there; false when none waits.
func (q *Queue[T]) Peek() (value T, ok bool) {
	for len(q.turns) > 0 {
		client := q.turns[0]
		list := q.queues[client]
		for len(list) > 0 && !list[0].queued {
			list[0] = nil
			list = list[1:]
			q.length--
			q.gone--
		}
		if len(list) > 0 {
			q.queues[client] = list
			return list[0].value, true
		}
		delete(q.queues, client)
		q.turns = q.turns[1:]
	}
	return value, false
}

// Remove takes an entry out; false when it is no longer there. Removed entries hold
// some bytes until half of the queue is removed ones, and no more than that: a client
// that comes and goes leaves nothing.
func (q *Queue[T]) Remove(e *Entry[T]) bool {
	if !e.queued {
		return false
	}
	e.queued = false
	e.forget()
	if q.gone++; q.gone < keepGone || q.gone < q.length/2 {
		return true
	}
	q.turns = slices.DeleteFunc(q.turns, func(client string) bool {
		list := slices.DeleteFunc(q.queues[client], func(e *Entry[T]) bool { return !e.queued })
		if len(list) == 0 {
			delete(q.queues, client)
			return true
		}
		q.queues[client] = list
		return false
	})
	q.length -= q.gone
	q.gone = 0
	return true
}

// keepGone is how many removed entries are kept before they are looked for.
const keepGone = 1000

// forget lets go of the value.
func (e *Entry[T]) forget() {
	var none T
	e.value = none
}
