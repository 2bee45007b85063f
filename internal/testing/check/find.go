package check

// finder looks events up by key. Lookups in the order of the events need no search.
type finder struct {
	events []Event
	next   int
	byKey  map[string]int
}

// find returns the index of the key's event, and false when there is none.
func (f *finder) find(key string) (int, bool) {
	if f.next < len(f.events) && f.events[f.next].KV.Key == key {
		f.next++
		return f.next - 1, true
	}
	if f.byKey == nil {
		f.byKey = make(map[string]int, len(f.events))
		for i := range f.events {
			f.byKey[f.events[i].KV.Key] = i
		}
	}
	i, ok := f.byKey[key]
	return i, ok
}
