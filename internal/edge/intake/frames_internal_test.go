package intake

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

const preface = http2.ClientPreface

// message returns a gRPC message with a body of size bytes.
func message(size int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, size)...)
}

// state has the bytes of each open request, by stream.
type state map[uint32]int64

func (f *frames) state() state {
	out := state{}
	for id, r := range f.open {
		out[id] = r.cost()
	}
	return out
}

// feedIn feeds p in pieces whose sizes next returns.
func feedIn(p []byte, next func() int) state {
	f := newFrames()
	for len(p) > 0 {
		n := min(next(), len(p))
		f.feed(p[:n], func(*request) {})
		f.news(func(*request) {})
		p = p[n:]
	}
	return f.state()
}

// A request is open from its header until its first message is complete, and again during each
// further message.
func TestOpenRequests(t *testing.T) {
	t.Parallel()
	type step func(*http2.Framer) error
	headers := func(id uint32, end bool) step {
		return func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x82}, EndHeaders: true, EndStream: end})
		}
	}
	data := func(id uint32, end bool, b []byte) step {
		return func(f *http2.Framer) error { return f.WriteData(id, end, b) }
	}
	padded := func(id uint32, b, pad []byte) step {
		return func(f *http2.Framer) error { return f.WriteDataPadded(id, false, b, pad) }
	}
	reset := func(id uint32) step {
		return func(f *http2.Framer) error { return f.WriteRSTStream(id, http2.ErrCodeCancel) }
	}
	ping := func(f *http2.Framer) error { return f.WritePing(false, [8]byte{}) }
	for name, c := range map[string]struct {
		steps []step
		want  state
	}{
		"a header":                   {[]step{headers(1, false)}, state{1: 0}},
		"a header alone":             {[]step{headers(1, true)}, state{}},
		"a whole request":            {[]step{headers(1, false), data(1, true, message(10))}, state{}},
		"an empty message":           {[]step{headers(1, false), data(1, false, message(0))}, state{}},
		"a part":                     {[]step{headers(1, false), data(1, false, message(100)[:50])}, state{1: 50 + frameCost}},
		"a part of the header":       {[]step{headers(1, false), data(1, false, message(100)[:3])}, state{1: 3 + frameCost}},
		"two parts":                  {[]step{headers(1, false), data(1, false, message(100)[:50]), ping, data(1, false, message(100)[50:60])}, state{1: 60 + 2*frameCost}},
		"both parts":                 {[]step{headers(1, false), data(1, false, message(100)[:50]), data(1, false, message(100)[50:])}, state{}},
		"a part and the end":         {[]step{headers(1, false), data(1, true, message(100)[:50])}, state{}},
		"a part and the end alone":   {[]step{headers(1, false), data(1, false, message(100)[:50]), data(1, true, nil)}, state{}},
		"nothing, twice":             {[]step{headers(1, false), data(1, false, nil), data(1, false, nil)}, state{1: 0}},
		"a reset":                    {[]step{headers(1, false), data(1, false, message(100)[:50]), reset(1)}, state{}},
		"another stream's reset":     {[]step{headers(1, false), headers(3, false), reset(3)}, state{1: 0}},
		"padding":                    {[]step{headers(1, false), padded(1, message(100)[:1], make([]byte, 200))}, state{1: 202 + frameCost}},
		"padding alone":              {[]step{headers(1, false), padded(1, nil, nil), ping, data(1, true, message(3))}, state{}},
		"padding after the message":  {[]step{headers(1, false), padded(1, message(9), make([]byte, 200)), ping, headers(3, false)}, state{3: 0}},
		"a second message begins":    {[]step{headers(1, false), data(1, false, append(message(10), message(20)[:7]...))}, state{1: 7 + frameCost}},
		"two messages in one frame":  {[]step{headers(1, false), data(1, false, append(message(10), message(20)...))}, state{}},
		"two streams by turns":       {[]step{headers(1, false), headers(3, false), data(1, false, message(9)[:6]), data(3, false, message(9)), data(1, false, message(9)[6:9])}, state{1: 9 + 2*frameCost}},
		"a stream without a header":  {[]step{data(1, false, message(100)[:50])}, state{1: 50 + frameCost}},
		"more after the whole":       {[]step{headers(1, false), data(1, false, message(1)), data(1, false, message(100)[:50])}, state{1: 50 + frameCost}},
		"a message of many frames":   {[]step{headers(1, false), data(1, false, message(40_000)[:16_000]), data(1, false, message(40_000)[16_000:32_000])}, state{1: 32_000 + 2*frameCost}},
		"the end of a great message": {[]step{headers(1, false), data(1, false, message(30_000)[:16_000]), data(1, true, message(30_000)[16_000:])}, state{}},
	} {
		var out bytes.Buffer
		out.WriteString(preface)
		framer := http2.NewFramer(&out, nil)
		framer.AllowIllegalWrites = true
		for _, s := range c.steps {
			if err := s(framer); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for size := range 40 {
			if got := feedIn(out.Bytes(), func() int { return size + 1 }); !maps.Equal(got, c.want) {
				t.Errorf("%s, in pieces of %d: %v, want %v", name, size+1, got, c.want)
			}
		}
		if got := feedIn(out.Bytes(), func() int { return out.Len() }); !maps.Equal(got, c.want) {
			t.Errorf("%s, whole: %v, want %v", name, got, c.want)
		}
	}
}

// The open requests of a byte sequence do not depend on its division into reads, and hold no more
// bytes than have arrived.
func FuzzFrames(f *testing.F) {
	frame := func(kind, flags byte, stream uint32, payload []byte) []byte {
		b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
		return append(binary.BigEndian.AppendUint32(b, stream), payload...)
	}
	f.Add(uint64(1), slices.Concat(frame(typeHeaders, 0, 1, []byte{0x82}), frame(typeData, 0, 1, message(30)[:20]), frame(typeData, flagPadded, 1, append([]byte{3}, message(30)[20:]...))))
	f.Add(uint64(2), slices.Concat(frame(typeData, flagPadded, 1, []byte{9}), frame(typeData, flagPadded|flagEndStream, 1, nil), frame(typeReset, 0, 1, []byte{0, 0, 0, 1})))
	f.Add(uint64(3), slices.Concat(frame(typeData, 0, 1, message(0)), frame(typeData, flagPadded, 3, []byte{200, 1}), frame(typeHeaders, flagEndStream, 3, nil)))
	f.Fuzz(func(t *testing.T, seed uint64, p []byte) {
		p = append([]byte(preface), p...)
		rnd := rand.New(rand.NewPCG(seed, 0))
		whole := feedIn(p, func() int { return len(p) })
		pieces := feedIn(p, func() int { return 1 + rnd.IntN(20) })
		if !maps.Equal(whole, pieces) {
			t.Errorf("fed whole: %v, fed in pieces: %v", whole, pieces)
		}
		for id, n := range whole {
			if n < 0 || n > int64(1<<24+len(p)*(frameCost+1)) {
				t.Errorf("stream %d holds %d bytes, and only %d arrived", id, n, len(p))
			}
		}
	})
}

// BenchmarkWholeRequest measures a request that arrives as a whole: headers, message and end.
func BenchmarkWholeRequest(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			var out bytes.Buffer
			framer := http2.NewFramer(&out, nil)
			if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 60), EndHeaders: true}); err != nil {
				b.Fatal(err)
			}
			if err := framer.WriteData(1, true, message(size)); err != nil {
				b.Fatal(err)
			}
			c := &conn{in: New(nil, 2<<20, nil), frames: newFrames()}
			c.done = func(r *request) { c.in.forget(r) }
			c.frames.feed([]byte(preface), c.done)
			b.ReportAllocs()
			for b.Loop() {
				c.frames.feed(out.Bytes(), c.done)
				c.frames.news(func(*request) { b.Fatal("a complete request is still open") })
			}
		})
	}
}
