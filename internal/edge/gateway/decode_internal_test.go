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

// A large request is decoded in a turn of its client, and not without one. A small one needs none.
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
				t.Errorf("%s: %d bytes of the value, %d turns over: %v", name, len(got.Value), left, err)
			}
			continue
		}
		if err != nil || len(got.Value) != c.size || turns != c.turns || left != turns {
			t.Errorf("%s: %d bytes of the value in %d turns, of which %d are over: %v", name, len(got.Value), turns, left, err)
		}
	}
}

// While a large request is decoded, other goroutines run.
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
	text := `{"lease":"x` + strings.Repeat("x", parts*quick) // of no number: protojson reads no further
	request := &whole{bytes.NewReader([]byte(text + `"}`)), func() (func(), error) { return func() {}, nil }}
	before := others.Load()
	if err := (&marshaler{gateway.JSONPb{}}).NewDecoder(request).Decode(new(etcdserverpb.PutRequest)); err == nil {
		t.Error("the request is taken")
	}
	during := others.Load() - before
	over.Store(true)
	<-ended
	if during < parts/2 {
		t.Errorf("another goroutine ran %d times, want about %d", during, parts)
	}
}

// Objects and lists count as nested; brackets within strings do not.
func TestNesting(t *testing.T) {
	for text, want := range map[string]int{
		``:                     0,
		`{"a":[{}],"b":[[]]}`:  3,
		`{"a":"[[[[","b":{}}`:  2,
		`{"\"[[[":"\\\"{{{{"}`: 1,
		`{"\\":[[]]}`:          3,
		`}}}[[`:                0, // not JSON
	} {
		var d nesting
		for _, c := range []byte(text) {
			d.add(c)
		}
		if d.deepest != want {
			t.Errorf("%s is nested %d deep, want %d", text, d.deepest, want)
		}
	}
}
