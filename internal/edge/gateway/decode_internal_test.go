package gateway

import (
	"bytes"
	"encoding/base64"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	gateway "github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A large request is decoded only in a turn of its client. A small request needs no turn.
func TestLargeRequestsAreDecodedInTurns(t *testing.T) {
	refused := errors.New("not now")
	for name, c := range map[string]struct {
		size  int
		err   error
		turns int
	}{
		"small":   {64, refused, 0},
		"large":   {2 * quick, nil, 1},
		"refused": {2 * quick, refused, 1},
	} {
		value := base64.StdEncoding.EncodeToString(make([]byte, c.size))
		turns, left := 0, 0
		request := &whole{bytes.NewReader([]byte(`{"value":"` + value + `"}`)), func() (func(), error) {
			turns++
			return func() { left++ }, c.err
		}}
		var got etcdserverpb.PutRequest
		err := (&marshaler{gateway.JSONPb{}}).NewDecoder(request).Decode(&got)
		if c.turns > 0 && c.err != nil {
			if !errors.Is(err, refused) || len(got.Value) > 0 || left != 0 {
				t.Errorf("%s, turn refused: %d bytes decoded, %d turns ended: %v", name, len(got.Value), left, err)
			}
			continue
		}
		if err != nil || len(got.Value) != c.size || turns != c.turns || left != turns {
			t.Errorf("%s: %d bytes decoded in %d turns, of which %d have ended: %v", name, len(got.Value), turns, left, err)
		}
	}
}

// Other goroutines run while a large request is decoded.
func TestDecodingYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var others atomic.Int64
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !over.Load() {
			others.Add(1)
			runtime.Gosched()
		}
	}()
	const parts = 50
	text := `{"lease":"x` + strings.Repeat("x", parts*quick) // not a number, so protojson stops here
	request := &whole{bytes.NewReader([]byte(text + `"}`)), func() (func(), error) { return func() {}, nil }}
	before := others.Load()
	if err := (&marshaler{gateway.JSONPb{}}).NewDecoder(request).Decode(new(etcdserverpb.PutRequest)); err == nil {
		t.Error("an invalid request was decoded")
	}
	during := others.Load() - before
	over.Store(true)
	<-ended
	if during < parts/2 {
		t.Errorf("another goroutine ran %d times, want about %d", during, parts)
	}
}

// The nesting depth counts objects and lists, but not brackets within strings.
func TestNesting(t *testing.T) {
	for text, want := range map[string]int{
		``:                     0,
		`{"a":[{}],"b":[[]]}`:  3,
		`{"a":"[[[[","b":{}}`:  2,
		`{"\"[[[":"\\\"{{{{"}`: 1,
		`{"\\":[[]]}`:          3,
		`}}}[[`:                0, // not valid JSON
	} {
		var d nesting
		for _, c := range []byte(text) {
			d.add(c)
		}
		if d.deepest != want {
			t.Errorf("%s: nesting depth %d, want %d", text, d.deepest, want)
		}
	}
}
