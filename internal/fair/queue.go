package fair

import "slices"

// Queue is a queue in which clients take turns. The zero Queue is empty. One goroutine at a time may use it.
type Queue[T any] struct {
	turns  []string // clients with entries, the next one first
	queues map[string][]*Entry[T]
	length int // of all queues, with removed entries
	gone   int // removed entries still in the queues
}

// Entry is a queued value.
type Entry[T any] struct {
	value  T
	queued bool // neither popped nor removed
}

// Push appends an entry of a client. All connections of a client use the same name: more connections give no
// more turns.
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

// Len returns the number of waiting entries.
func (q *Queue[T]) Len() int { return q.length - q.gone }

// Pop removes the next entry and returns its value; false: none waits.
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

// Peek returns the value of the next entry without removing it; false: none waits.
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

// Remove removes an entry; false: it was removed or popped before. Removed entries keep some bytes until they
// are half of the queue, so a client that comes and goes leaves nothing behind for long.
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

// keepGone is the number of removed entries below which they are not cleared.
const keepGone = 1000

// forget releases the value.
func (e *Entry[T]) forget() {
	var none T
	e.value = none
}
