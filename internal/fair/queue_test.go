package fair_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
)

// client is a name.
func client(n int) string { return fmt.Sprint("client ", n) }

// A client with many entries delays another client by a single entry.
func TestClientsTakeTurns(t *testing.T) {
	var q fair.Queue[string]
	a, b := client(1), client(2)
	for i := range 4 {
		q.Push(a, fmt.Sprint("a", i))
	}
	q.Push(b, "b0")
	q.Push(b, "b1")
	if next, ok := q.Peek(); !ok || next != "a0" || q.Len() != 6 {
		t.Errorf("next is %q, %d entries", next, q.Len())
	}
	var got []string
	for v, ok := q.Pop(); ok; v, ok = q.Pop() {
		got = append(got, v)
	}
	if want := []string{"a0", "b0", "a1", "b1", "a2", "a3"}; !slices.Equal(got, want) || q.Len() != 0 {
		t.Errorf("got %v, want %v; %d entries left", got, want, q.Len())
	}
	if v, ok := q.Peek(); ok {
		t.Errorf("an empty queue has %q", v)
	}
}

// A removed entry is not popped, cannot be removed again, and does not stay in memory for long.
func TestRemovedEntriesAreGone(t *testing.T) {
	var q fair.Queue[int]
	a, b := client(1), client(2)
	var entries []*fair.Entry[int]
	for i := range 10_000 {
		entries = append(entries, q.Push(a, i))
	}
	last := q.Push(b, -1)
	for _, e := range entries {
		if !q.Remove(e) || q.Remove(e) {
			t.Fatal("an entry was removed twice, or not at all")
		}
	}
	if kept := fair.Kept(&q); q.Len() != 1 || kept > 1001 {
		t.Errorf("%d entries wait, %d are kept", q.Len(), kept)
	}
	if v, ok := q.Peek(); !ok || v != -1 {
		t.Errorf("next is %d, %v", v, ok)
	}
	if v, ok := q.Pop(); !ok || v != -1 || q.Remove(last) {
		t.Errorf("popped %d, %v", v, ok)
	}
	if v, ok := q.Pop(); ok {
		t.Errorf("popped %d from an empty queue", v)
	}
}

// For any sequence of operations, each client's entries keep their order, and no client is served twice before
// another waiting one.
func TestQueueAgainstAModel(t *testing.T) {
	rng := testseed.Rand(t)
	type item struct{ client, n int }
	var q fair.Queue[item]
	clients := []string{client(0), client(1), client(2), client(3)}
	model := make([][]item, len(clients))
	entries := make(map[item]*fair.Entry[item])
	for n := range 50_000 {
		switch c := rng.IntN(len(clients)); rng.IntN(5) {
		case 0, 1:
			x := item{c, n}
			entries[x] = q.Push(clients[c], x)
			model[c] = append(model[c], x)
		case 2:
			if len(model[c]) == 0 {
				continue
			}
			i := rng.IntN(len(model[c]))
			x := model[c][i]
			model[c] = slices.Delete(model[c], i, i+1)
			if !q.Remove(entries[x]) {
				t.Fatalf("%v is not in the queue", x)
			}
		default:
			want, any := q.Peek()
			got, ok := q.Pop()
			if ok != any || got != want {
				t.Fatalf("popped %v, %v after peeking at %v, %v", got, ok, want, any)
			}
			if !ok {
				continue
			}
			if len(model[got.client]) == 0 || model[got.client][0] != got {
				t.Fatalf("popped %v, want the first of %v", got, model[got.client])
			}
			model[got.client] = model[got.client][1:]
		}
		if total := len(model[0]) + len(model[1]) + len(model[2]) + len(model[3]); total != q.Len() {
			t.Fatalf("%d entries, want %d", q.Len(), total)
		}
	}
}
