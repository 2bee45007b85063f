package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Apply calls the functions that update a copy, in order, and ends with the first error.
func TestApplyEveryKind(t *testing.T) {
	kv := func(key string) KeyValue { return KeyValue{Key: []byte(key), Value: []byte("1")} }
	events := []Event{{KV: kv("a")}, {Type: EventDelete, KV: KeyValue{Key: []byte("a")}}, {KV: kv("b")}}
	unit := Update{KVs: []KeyValue{kv("a"), kv("b")}, Deleted: [][]byte{[]byte("c")}}
	for kind, want := range map[UpdateKind]string{
		KindBatch:     "put a=1, remove a, put b=1",
		KindState:     "reset, put a=1, put b=1",
		KindProgress:  "",
		KindDelta:     "put a=1, put b=1, remove c",
		KindResync:    "reset, put a=1, put b=1",
		KindConflated: "put a=1, put b=1, remove c",
	} {
		u := unit
		u.Kind = kind
		switch kind {
		case KindBatch, KindProgress:
			if u = (Update{Kind: kind}); kind == KindBatch {
				u.Events = events
			}
		case KindState, KindResync:
			u.Deleted = nil
		case KindDelta, KindConflated:
		}
		for fails := range 5 { // the index of the failing call
			var calls []string
			boom := errors.New("the copy is read-only")
			call := func(format string, args ...any) error {
				calls = append(calls, fmt.Sprintf(format, args...))
				if len(calls) == fails+1 {
					return boom
				}
				return nil
			}
			err := u.Apply(func(kv KeyValue) error { return call("put %s=%s", kv.Key, kv.Value) },
				func(key []byte) error { return call("remove %s", key) }, func() error { return call("reset") })
			var whole []string
			if want != "" {
				whole = strings.Split(want, ", ")
			}
			if fails < len(whole) {
				whole = whole[:fails+1]
			} else {
				boom = nil
			}
			if !slices.Equal(calls, whole) || !errors.Is(err, boom) {
				t.Errorf("%v, call %d fails: got %q, %v; want %q, %v", kind, fails, calls, err, whole, boom)
			}
		}
	}
}
