package etcdapi

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

func listItem(i, version, size int) *kv.KeyValue {
	return kv.NewKeyValue(kv.Fields{
		Key: fmt.Appendf(nil, "/registry/pods/%06d", i), Value: bytes.Repeat([]byte{byte('a' + version%26)}, size),
		CreateRevision: kv.Revision(i + 2), ModRevision: kv.Revision(1_000_000 + version), Version: int64(version),
	})
}

// noClient is the holder of bytes that count only against the node's budget.
func noClient() budget.Client { return budget.Client{} }

// build builds an answer from the items.
func build(tb testing.TB, s *chunks, items []*kv.KeyValue, form wire.ItemForm) *list {
	tb.Helper()
	l := s.list(form, noClient)
	for _, item := range items {
		if err := l.add(item); err != nil {
			tb.Fatal(err)
		}
	}
	if err := l.finish(); err != nil {
		tb.Fatal(err)
	}
	return l
}

func (l *list) answer() *wire.RangeAnswer {
	return &wire.RangeAnswer{Header: &wire.Header{}, Encoded: l.buffers, Items: l.items, Form: l.form}
}

// distinct returns the bytes of the answers; shared bytes count once.
func distinct(lists []*list) (total int) {
	seen := make(map[*byte]bool)
	for _, l := range lists {
		for _, b := range l.buffers {
			if data := b.ReadOnlyData(); !seen[&data[0]] {
				seen[&data[0]] = true
				total += len(data)
			}
		}
	}
	return total
}

// eventuallyHeld waits until the garbage collector has freed the answers.
func eventuallyHeld(tb testing.TB, s *chunks, want int64) {
	tb.Helper()
	for range 1000 {
		if s.budget.Held(budget.Lists) == want {
			return
		}
		runtime.GC()
	}
	tb.Fatalf("%d bytes are held, want %d", s.budget.Held(budget.Lists), want)
}

// For all ranges, positions and orders, a shared answer has the same bytes as a separate encoding.
func TestChunksHaveTheBytesOfTheirItems(t *testing.T) {
	rng := testseed.Rand(t)
	s := newChunks(budget.New(1 << 40))
	s.least, s.usual, s.most = 2000, 4000, 16000
	var state []*kv.KeyValue
	sizes := []int{10, 10, 100, 100, 1000, 5000, 20000, wire.SharedItem, 40000}
	for i := range 1000 {
		state = append(state, listItem(i, 0, sizes[rng.IntN(len(sizes))]))
	}
	var open []*list
	for version := 1; version < 400; version++ {
		for range rng.IntN(4) {
			switch i := rng.IntN(len(state)); rng.IntN(6) {
			case 0: // a delete
				state = append(state[:i:i], state[i+1:]...)
			case 1: // insert an item; its order does not matter here
				state = append(state[:i:i], append([]*kv.KeyValue{listItem(1000+version, version, 50)}, state[i:]...)...)
			default:
				state[i] = listItem(i, version, sizes[rng.IntN(len(sizes))])
			}
		}
		from := rng.IntN(len(state))
		to := from + rng.IntN(len(state)-from+1)
		if rng.IntN(2) == 0 {
			from, to = 0, len(state)
		}
		items := state[from:to:to]
		if rng.IntN(5) == 0 {
			items = append([]*kv.KeyValue(nil), items...)
			rng.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		}
		form := wire.ItemForm(rng.IntN(3))
		l := build(t, s, items, form)
		got := l.answer().Encode().Buffers
		want := (&wire.RangeAnswer{Header: &wire.Header{}, Items: items, Form: form}).Encode().Buffers
		if !bytes.Equal(got.Materialize(), want.Materialize()) {
			t.Fatalf("version %d, items %d to %d, form %d: the bytes differ", version, from, to, form)
		}
		open = append(open, &list{buffers: got})
		for len(open) > rng.IntN(20) {
			i := rng.IntN(len(open))
			open[i].buffers.Free()
			open = append(open[:i], open[i+1:]...)
		}
	}
	for _, l := range open {
		l.buffers.Free()
	}
	if held := s.budget.Held(budget.Lists); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
	for range 1000 {
		runtime.GC()
		s.mu.Lock()
		left := len(s.live)
		s.mu.Unlock()
		if left == 0 {
			return
		}
	}
	t.Error("chunks that no list holds are kept")
}

// Many equal lists take the memory of one, and are encoded once. After some writes, another list
// adds little. The ends of pages are shared, too.
func TestAHerdSharesItsBytes(t *testing.T) {
	s := newChunks(budget.New(1 << 40))
	var state []*kv.KeyValue
	for i := range 20_000 {
		state = append(state, listItem(i, 0, 1000))
	}
	const size = 20_000 * 1000
	var herd []*list
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			l := build(t, s, state, wire.WholeItem)
			mu.Lock()
			defer mu.Unlock()
			herd = append(herd, l)
		})
	}
	wg.Wait()
	if got := distinct(herd); got < size || got > size*11/10 {
		t.Errorf("50 equal lists of %d bytes hold %d bytes", size, got)
	}
	if held := s.budget.Held(budget.Lists); held != int64(distinct(herd)) {
		t.Errorf("the budget has %d bytes, the lists hold %d", distinct(herd), held)
	}
	before := distinct(herd)
	for _, i := range []int{0, 7000, 19_999} {
		state[i] = listItem(i, 1, 1000)
	}
	state = append(state[:100:100], state[101:]...)
	herd = append(herd, build(t, s, state, wire.WholeItem))
	if more := distinct(herd) - before; more < 3000 || more > 8*mostChunk {
		t.Errorf("four writes add %d bytes", more)
	}
	page := []*list{build(t, s, state[1234:1834], wire.WholeItem), build(t, s, state[1234:1834], wire.WholeItem)}
	if got := distinct(page); got > 600*1100 {
		t.Errorf("two equal pages of 600 KB hold %d bytes", got)
	}
	for _, l := range append(herd, page...) {
		l.buffers.Free()
	}
	if held := s.budget.Held(budget.Lists); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

// Answers whose buffers gRPC never returns do not count forever.
func TestUnreturnedAnswersAreReleased(t *testing.T) {
	s := newChunks(budget.New(1 << 40))
	func() {
		var state []*kv.KeyValue
		for i := range 1000 {
			state = append(state, listItem(i, 0, 1000))
		}
		if build(t, s, state, wire.WholeItem); s.budget.Held(budget.Lists) < 900_000 {
			t.Errorf("%d bytes are held", s.budget.Held(budget.Lists))
		}
	}()
	eventuallyHeld(t, s, 0)
}

// Answers that exceed the budget are refused, except for a single list. Shared bytes count once,
// and released bytes can be used again.
func TestAnswersAreBounded(t *testing.T) {
	s := newChunks(budget.New(16 << 20)) // 4 MiB of it for lists
	state := make([][]*kv.KeyValue, 3)
	for version := range state {
		for i := range 3000 {
			state[version] = append(state[version], listItem(i, version, 1000))
		}
	}
	add := func(items []*kv.KeyValue) (*list, error) {
		l := s.list(wire.WholeItem, noClient)
		for _, item := range items {
			if err := l.add(item); err != nil {
				l.buffers.Free()
				return nil, err
			}
		}
		return l, l.finish()
	}
	var herd []*list
	for range 50 {
		l, err := add(state[0])
		if err != nil {
			t.Fatal(err)
		}
		herd = append(herd, l)
	}
	held := s.budget.Held(budget.Lists)
	_, err := add(state[1])
	if answer, ok := errors.AsType[final](err); !ok || status.Code(answer.error) != codes.ResourceExhausted || !strings.Contains(err.Error(), budget.Flag) {
		t.Errorf("a list beyond the budget: %v", err)
	}
	if s.budget.Held(budget.Lists) != held {
		t.Errorf("a refused list holds %d bytes", s.budget.Held(budget.Lists)-held)
	}
	var buffers mem.BufferSlice
	for _, l := range herd {
		buffers = append(buffers, l.buffers...)
	}
	buffers.Free()
	l, err := add(append(append(append([]*kv.KeyValue(nil), state[0]...), state[1]...), state[2]...))
	if err != nil || s.budget.Held(budget.Lists) < 8<<20 {
		t.Errorf("a single list of 9 MB: %v, %d bytes", err, s.budget.Held(budget.Lists))
	}
	l.buffers.Free()
	if held := s.budget.Held(budget.Lists); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

// A client that does not read its lists uses only its part of the memory for lists; the rest is
// left for other clients. Bytes that several answers of a client share count once for the client.
func TestOneClientsListsLeaveRoom(t *testing.T) {
	s := newChunks(budget.New(32 << 20)) // 8 MiB of it for lists, 4 MiB for each client
	add := func(who string, version int) (*list, error) {
		l := s.list(wire.WholeItem, func() budget.Client { return budget.Client{Name: who, Max: budget.HalfOfTotal} })
		for i := range 3000 {
			if err := l.add(listItem(i, version, 1000)); err != nil {
				l.buffers.Free()
				return nil, err
			}
		}
		return l, l.finish()
	}
	must := func(l *list, err error) *list {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	held := must(add("unread", 1))
	if l, err := add("unread", 2); err == nil || !strings.Contains(err.Error(), "unread") || !strings.Contains(err.Error(), budget.Flag) {
		t.Errorf("another 3 MB for a client that holds 3 of 4 MiB: %v, %v", l, err)
	}
	reader := must(add("reader", 3))
	held.buffers.Free()
	again := must(add("unread", 4))
	reader.buffers.Free()
	again.buffers.Free()
	for _, status := range s.budget.Status() {
		if status.Held != 0 || status.Clients != 0 {
			t.Errorf("%v: %+v", status.Use, status)
		}
	}
	// The same items in fifty answers for each of two clients.
	var state []*kv.KeyValue
	for i := range 3000 {
		state = append(state, listItem(i, 5, 1000))
	}
	var buffers mem.BufferSlice
	for i := range 100 {
		l := s.list(wire.WholeItem, func() budget.Client { return budget.Client{Name: []string{"a", "b"}[i%2], Max: budget.HalfOfTotal} })
		for _, item := range state {
			if err := l.add(item); err != nil {
				t.Fatalf("answer %d: %v", i, err)
			}
		}
		if err := l.finish(); err != nil {
			t.Fatal(err)
		}
		buffers = append(buffers, l.buffers...)
	}
	if h := s.budget.Held(budget.Lists); h > 4<<20 {
		t.Errorf("%d bytes are held", h)
	}
	buffers.Free()
	for _, status := range s.budget.Status() {
		if status.Held != 0 || status.Clients != 0 {
			t.Errorf("%v: %+v", status.Use, status)
		}
	}
}

func BenchmarkChunks(b *testing.B) {
	var state []*kv.KeyValue
	for i := range 100_000 {
		state = append(state, listItem(i, 0, 1000))
	}
	for _, shared := range []bool{true, false} {
		b.Run(fmt.Sprintf("keys=%d/shared=%v", len(state), shared), func(b *testing.B) {
			s := newChunks(budget.New(1 << 40))
			if shared {
				defer build(b, s, state, wire.WholeItem).buffers.Free()
			}
			b.ReportAllocs()
			for b.Loop() {
				if !shared {
					s = newChunks(budget.New(1 << 40))
				}
				build(b, s, state, wire.WholeItem).buffers.Free()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(state)), "ns/key")
		})
	}
}

// Keys of other nodes that wait to be sorted count against the budget of their client.
func TestKeptKeysAreBounded(t *testing.T) {
	s := newChunks(budget.New(64 << 20)) // 4 MiB of it for keys of other nodes, 2 MiB for each client
	client := func() budget.Client { return budget.Client{Name: "a", Max: budget.HalfOfTotal} }
	fill := func() (l *list, kept int, err error) {
		l = s.list(wire.WholeItem, client)
		for ; err == nil && kept < 100; kept++ {
			err = l.keep(len(listItem(kept, 1, 100<<10).Encoded()))
		}
		return l, kept, err
	}
	alone, kept, err := fill()
	if err != nil || s.budget.Held(budget.Fetches) < 10_000_000 {
		t.Errorf("a single list kept %d keys: %v, %d bytes", kept, err, s.budget.Held(budget.Fetches))
	}
	second, kept, err := fill()
	if !errors.As(err, new(*kv.LimitError)) || kept > 2 {
		t.Errorf("a second list kept %d keys: %v", kept, err)
	}
	alone.leave()
	second.leave()
	if held := s.budget.Held(budget.Fetches); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}
