package fair

// Kept returns how many entries are kept, removed ones included.
func Kept[T any](q *Queue[T]) (n int) {
	for _, list := range q.queues {
		n += len(list)
	}
	return n
}
