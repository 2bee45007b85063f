package grpcserver_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// rule is a rule of RFC 9113 or RFC 7541, as h2spec tests it: the client's frames, and the required
// reaction.
type rule struct {
	name string
	do   func(*raw)
	// goAway is the code that ends the connection, reset that of stream 1; both 0: the connection continues.
	goAway, reset http2.ErrCode
	no            bool // the reset has code NO_ERROR
}

func check(t *testing.T, rules []rule) {
	t.Helper()
	address, _ := serve(t, config())
	for _, c := range rules {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := greet(t, address)
			c.do(r)
			switch {
			case c.goAway != 0:
				r.expectGoAway(c.goAway)
			case c.reset != 0 || c.no:
				r.expectReset(1, c.reset)
			default:
				r.alive()
			}
		})
	}
}

// frame writes a frame, valid or not.
func (r *raw) frame(kind http2.FrameType, flags http2.Flags, id uint32, payload ...byte) {
	r.t.Helper()
	r.must(r.WriteRawFrame(kind, flags, id, payload))
}

// half opens stream 1 and leaves it open. ended ends it from the client's side, and reads its
// answer.
func (r *raw) half() { r.t.Helper(); r.open(1, false, call(duplexMethod)...) }

func (r *raw) ended() {
	r.t.Helper()
	r.open(1, false, call(unaryMethod)...)
	r.must(r.WriteData(1, true, message(new(pb.SimpleRequest))))
	if h, _, _ := r.answer(1); h["grpc-status"] != "0" {
		r.t.Fatalf("%v", h)
	}
}

const (
	protocol = http2.ErrCodeProtocol
	size     = http2.ErrCodeFrameSize
	flow     = http2.ErrCodeFlowControl
	closed   = http2.ErrCodeStreamClosed
	hpackErr = http2.ErrCodeCompression
)

// RFC 9113, 4: frames.
func TestFrames(t *testing.T) {
	check(t, []rule{
		{name: "4.1 an unknown type is ignored", do: func(r *raw) { r.frame(0x16, 0, 0, make([]byte, 8)...) }},
		{name: "4.1 undefined flags are ignored", do: func(r *raw) { r.frame(http2.FramePing, 0x16, 0, make([]byte, 8)...) }},
		{name: "4.1 the reserved bit is ignored", do: func(r *raw) { r.write([]byte{0, 0, 8, 6, 0, 0x80, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}) }},
		{name: "4.2 DATA of the maximum size", no: true, do: func(r *raw) { // its message has an unknown format
			r.half()
			r.must(r.WriteData(1, false, bytes.Repeat([]byte{9}, 16384)))
		}},
		{name: "4.2 DATA above the maximum", goAway: size, do: func(r *raw) { r.half(); r.frame(http2.FrameData, 0, 1, make([]byte, 16385)...) }},
		{name: "4.2 HEADERS above the maximum", goAway: size, do: func(r *raw) { r.frame(http2.FrameHeaders, 4, 1, make([]byte, 16385)...) }},
		{name: "4.3 an invalid header block", goAway: hpackErr, do: func(r *raw) { r.frame(http2.FrameHeaders, 5, 1, 0x40) }},
		{name: "4.3 PRIORITY within a header block", goAway: protocol, do: func(r *raw) {
			r.frame(http2.FrameHeaders, 0, 1, r.block(call(unaryMethod)...)...)
			r.must(r.WritePriority(1, http2.PriorityParam{Weight: 255}))
		}},
		{name: "4.3 another stream within a header block", goAway: protocol, do: func(r *raw) {
			r.frame(http2.FrameHeaders, 0, 1, r.block(call(unaryMethod)...)...)
			r.frame(http2.FrameHeaders, 4, 3, r.block(call(unaryMethod)...)...)
		}},
		{name: "5.5 an unknown type within a header block", goAway: protocol, do: func(r *raw) {
			r.frame(http2.FrameHeaders, 0, 1, r.block(call(unaryMethod)...)...)
			r.frame(0x16, 0, 0, 1)
		}},
	})
}

// RFC 9113, 3.4: the preface.
func TestPreface(t *testing.T) {
	address, _ := serve(t, config())
	for name, first := range map[string]string{
		"none":               "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"no SETTINGS":        http2.ClientPreface + "\x00\x00\x08\x06\x00\x00\x00\x00\x00" + "12345678",
		"SETTINGS's answer":  http2.ClientPreface + "\x00\x00\x00\x04\x01\x00\x00\x00\x00",
		"a wrong last octet": http2.ClientPreface[:23] + "!",
	} {
		t.Run(name, func(t *testing.T) {
			r := connect(t, address)
			r.write([]byte(first))
			_ = r.conn.(*net.TCPConn).CloseWrite()
			b, _ := io.ReadAll(r.conn)
			if bytes.Contains(b, []byte{0, 0, 0, 4, 1, 0, 0, 0, 0}) {
				t.Errorf("the settings were acknowledged: %x", b)
			}
		})
	}
}

// RFC 9113, 5.1: stream states.
func TestStreamStates(t *testing.T) {
	check(t, []rule{
		{name: "idle: DATA", goAway: protocol, do: func(r *raw) { r.must(r.WriteData(1, true, []byte("x"))) }},
		{name: "idle: RST_STREAM", goAway: protocol, do: func(r *raw) { r.must(r.WriteRSTStream(1, http2.ErrCodeCancel)) }},
		{name: "idle: WINDOW_UPDATE", goAway: protocol, do: func(r *raw) { r.must(r.WriteWindowUpdate(1, 100)) }},
		{name: "idle: CONTINUATION", goAway: protocol, do: func(r *raw) { r.must(r.WriteContinuation(1, true, r.block(call(unaryMethod)...))) }},
		{name: "idle: PRIORITY", do: func(r *raw) { r.must(r.WritePriority(1, http2.PriorityParam{Weight: 255})) }},
		{name: "half closed: DATA", reset: closed, do: func(r *raw) { r.open(1, true, call(duplexMethod)...); r.must(r.WriteData(1, true, []byte("x"))) }},
		{name: "half closed: CONTINUATION", goAway: protocol, do: func(r *raw) { r.open(1, true, call(duplexMethod)...); r.must(r.WriteContinuation(1, true, nil)) }},
		{name: "closed: DATA after RST_STREAM", reset: closed, do: func(r *raw) {
			r.half()
			r.must(r.WriteRSTStream(1, http2.ErrCodeCancel))
			r.must(r.WriteData(1, true, []byte("x")))
		}},
		{name: "closed: HEADERS after RST_STREAM", goAway: protocol, do: func(r *raw) {
			r.half()
			r.must(r.WriteRSTStream(1, http2.ErrCodeCancel))
			r.half()
		}},
		{name: "closed: DATA", reset: closed, do: func(r *raw) { r.ended(); r.must(r.WriteData(1, true, []byte("x"))) }},
		{name: "closed: HEADERS", goAway: protocol, do: func(r *raw) { r.ended(); r.half() }},
		{name: "closed: CONTINUATION", goAway: protocol, do: func(r *raw) { r.ended(); r.must(r.WriteContinuation(1, true, nil)) }},
		{name: "closed: RST_STREAM, WINDOW_UPDATE and PRIORITY", do: func(r *raw) {
			r.ended()
			r.must(errors.Join(r.WriteRSTStream(1, http2.ErrCodeCancel), r.WriteWindowUpdate(1, 1), r.WritePriority(1, http2.PriorityParam{})))
		}},
		{name: "5.1.1 an even number", goAway: protocol, do: func(r *raw) { r.open(2, true, call(unaryMethod)...) }},
		{name: "5.1.1 a smaller number", goAway: protocol, do: func(r *raw) { r.open(5, true, call(duplexMethod)...); r.open(3, true, call(duplexMethod)...) }},
		{name: "5.3 a stream that depends on itself", reset: protocol, do: func(r *raw) {
			r.must(r.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, BlockFragment: r.block(call(duplexMethod)...), EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 1, Weight: 1},
			}))
		}},
		{name: "5.3 PRIORITY on itself", reset: protocol, do: func(r *raw) { r.half(); r.must(r.WritePriority(1, http2.PriorityParam{StreamDep: 1})) }},
	})
}

// RFC 9113, 5.1.2: a stream above the server's limit is refused, until another stream ends.
func TestTooManyStreams(t *testing.T) {
	address, _ := serve(t, config())
	r := greet(t, address)
	for id := uint32(1); id < 200; id += 2 {
		r.open(id, false, call(duplexMethod)...)
	}
	r.open(201, false, call(duplexMethod)...)
	r.expectReset(201, http2.ErrCodeRefusedStream)
	r.must(r.WriteRSTStream(1, http2.ErrCodeCancel))
	r.open(203, true, call(duplexMethod)...)
	if h, _, _ := r.answer(203); h["grpc-status"] != "0" {
		t.Errorf("%v", h)
	}
}

// RFC 9113, 6.1 to 6.4 and 6.10: DATA, HEADERS, PRIORITY, RST_STREAM, CONTINUATION.
func TestStreamFrames(t *testing.T) {
	check(t, []rule{
		{name: "6.1 DATA on stream 0", goAway: protocol, do: func(r *raw) { r.frame(http2.FrameData, 0, 0, 1) }},
		{name: "6.1 padding that is too long", goAway: protocol, do: func(r *raw) { r.half(); r.frame(http2.FrameData, 8, 1, 6, 1, 2, 3, 4) }},
		{name: "6.1 padding is not content", do: func(r *raw) {
			r.open(1, false, call(unaryMethod)...)
			r.must(r.WriteDataPadded(1, true, message(new(pb.SimpleRequest)), make([]byte, 100)))
			if h, _, _ := r.answer(1); h["grpc-status"] != "0" {
				r.t.Errorf("%v", h)
			}
		}},
		{name: "6.2 HEADERS on stream 0", goAway: protocol, do: func(r *raw) { r.frame(http2.FrameHeaders, 4, 0, r.block(call(unaryMethod)...)...) }},
		{name: "6.2 padding that is too long", goAway: protocol, do: func(r *raw) {
			r.frame(http2.FrameHeaders, 8|4, 1, append([]byte{255}, r.block(call(unaryMethod)...)...)...)
		}},
		{name: "6.3 PRIORITY on stream 0", goAway: protocol, do: func(r *raw) { r.frame(http2.FramePriority, 0, 0, 0, 0, 0, 0, 1) }},
		{name: "6.3 PRIORITY of four octets", goAway: size, do: func(r *raw) { r.frame(http2.FramePriority, 0, 1, 0, 0, 0, 0) }},
		{name: "6.4 RST_STREAM on stream 0", goAway: protocol, do: func(r *raw) { r.frame(http2.FrameRSTStream, 0, 0, 0, 0, 0, 8) }},
		{name: "6.4 RST_STREAM of three octets", goAway: size, do: func(r *raw) { r.half(); r.frame(http2.FrameRSTStream, 0, 1, 0, 0, 0) }},
		{name: "6.6 PUSH_PROMISE", goAway: protocol, do: func(r *raw) {
			r.half()
			r.must(r.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 3, BlockFragment: r.block(call(unaryMethod)...), EndHeaders: true}))
		}},
		{name: "6.10 several CONTINUATION frames", do: func(r *raw) {
			b := r.block(call(unaryMethod)...)
			r.frame(http2.FrameHeaders, 0, 1, b[:5]...)
			r.must(errors.Join(r.WriteContinuation(1, false, b[5:6]), r.WriteContinuation(1, true, b[6:])))
			r.must(r.WriteData(1, true, message(new(pb.SimpleRequest))))
			if h, _, _ := r.answer(1); h["grpc-status"] != "0" {
				r.t.Errorf("%v", h)
			}
		}},
		{name: "6.10 DATA within a header block", goAway: protocol, do: func(r *raw) {
			r.frame(http2.FrameHeaders, 0, 1, r.block(call(unaryMethod)...)...)
			r.must(r.WriteData(1, true, nil))
		}},
		{name: "6.10 CONTINUATION on stream 0", goAway: protocol, do: func(r *raw) {
			r.frame(http2.FrameHeaders, 0, 1, r.block(call(unaryMethod)...)...)
			r.frame(http2.FrameContinuation, 4, 0)
		}},
		{name: "6.10 CONTINUATION after END_HEADERS", goAway: protocol, do: func(r *raw) { r.half(); r.must(r.WriteContinuation(1, true, nil)) }},
	})
}

// RFC 9113, 6.5 and 6.7 to 6.9: SETTINGS, PING, GOAWAY, WINDOW_UPDATE.
func TestConnectionFrames(t *testing.T) {
	set := func(id http2.SettingID, v uint32) func(*raw) {
		return func(r *raw) { r.must(r.WriteSettings(http2.Setting{ID: id, Val: v})) }
	}
	check(t, []rule{
		{name: "6.5 an ACK with content", goAway: size, do: func(r *raw) { r.frame(http2.FrameSettings, 1, 0, 0) }},
		{name: "6.5 SETTINGS on a stream", goAway: protocol, do: func(r *raw) { r.frame(http2.FrameSettings, 0, 1) }},
		{name: "6.5 SETTINGS of three octets", goAway: size, do: func(r *raw) { r.frame(http2.FrameSettings, 0, 0, 0, 0, 0) }},
		{name: "6.5.2 ENABLE_PUSH of 2", goAway: protocol, do: set(http2.SettingEnablePush, 2)},
		{name: "6.5.2 INITIAL_WINDOW_SIZE of 2^31", goAway: flow, do: set(http2.SettingInitialWindowSize, 1<<31)},
		{name: "6.5.2 MAX_FRAME_SIZE below 2^14", goAway: protocol, do: set(http2.SettingMaxFrameSize, 1<<14-1)},
		{name: "6.5.2 MAX_FRAME_SIZE of 2^24", goAway: protocol, do: set(http2.SettingMaxFrameSize, 1<<24)},
		{name: "6.5.2 an unknown setting", do: set(0xff, 1)},
		{name: "6.7 a PING is answered", do: func(r *raw) { r.alive() }},
		{name: "6.7 an answer is not answered", do: func(r *raw) {
			r.must(r.WritePing(true, [8]byte{1}))
			r.must(r.WritePing(false, [8]byte{2}))
			if f := r.next().(*http2.PingFrame); f.Data != [8]byte{2} {
				r.t.Errorf("answered %v", f.Data)
			}
		}},
		{name: "6.7 PING on a stream", goAway: protocol, do: func(r *raw) { r.frame(http2.FramePing, 0, 1, make([]byte, 8)...) }},
		{name: "6.7 PING of six octets", goAway: size, do: func(r *raw) { r.frame(http2.FramePing, 0, 0, make([]byte, 6)...) }},
		{name: "6.8 GOAWAY on a stream", goAway: protocol, do: func(r *raw) { r.frame(http2.FrameGoAway, 0, 1, make([]byte, 8)...) }},
		{name: "7 GOAWAY with an unknown code", do: func(r *raw) { r.must(r.WriteGoAway(0, 0xff, nil)) }},
		{name: "7 RST_STREAM with an unknown code", do: func(r *raw) { r.half(); r.must(r.WriteRSTStream(1, 0xff)) }},
		{name: "6.9 an increment of 0", goAway: protocol, do: func(r *raw) { r.must(r.WriteWindowUpdate(0, 0)) }},
		{name: "6.9 an increment of 0 on a stream", reset: protocol, do: func(r *raw) { r.half(); r.must(r.WriteWindowUpdate(1, 0)) }},
		{name: "6.9 WINDOW_UPDATE of three octets", goAway: size, do: func(r *raw) { r.frame(http2.FrameWindowUpdate, 0, 0, 0, 0, 1) }},
		{name: "6.9.1 a window above 2^31-1", goAway: flow, do: func(r *raw) { r.must(r.WriteWindowUpdate(0, 1<<31-1)) }},
		{name: "6.9.1 a stream's window above 2^31-1", reset: flow, do: func(r *raw) { r.half(); r.must(r.WriteWindowUpdate(1, 1<<31-1)) }},
		{name: "6.9.2 INITIAL_WINDOW_SIZE up to 2^31-1 on a stream", do: func(r *raw) {
			r.half()
			r.must(r.WriteWindowUpdate(1, 1<<31-1-70_000))
			set(http2.SettingInitialWindowSize, 70_000)(r)
		}},
		{name: "6.9.2 INITIAL_WINDOW_SIZE above 2^31-1 on a stream", goAway: flow, do: func(r *raw) {
			r.half()
			r.must(r.WriteWindowUpdate(1, 1<<31-1-70_000))
			set(http2.SettingInitialWindowSize, 70_001)(r)
		}},
	})
}

// RFC 9113, 8: requests.
func TestRequests(t *testing.T) {
	field := func(more ...string) func(*raw) {
		return func(r *raw) { r.open(1, true, call(duplexMethod, more...)...) }
	}
	only := func(fields ...string) func(*raw) { return func(r *raw) { r.open(1, true, fields...) } }
	check(t, []rule{
		{name: "8.1 a second HEADERS without END_STREAM", reset: protocol, do: func(r *raw) { r.half(); r.open(1, false, "x", "y") }},
		{name: "8.1 trailers", do: func(r *raw) {
			r.half()
			r.open(1, true, "x", "y")
			if h, _, _ := r.answer(1); h["grpc-status"] != "0" {
				r.t.Errorf("%v", h)
			}
		}},
		{name: "8.1 pseudo-headers in trailers", reset: protocol, do: func(r *raw) { r.half(); r.open(1, true, ":method", "POST") }},
		{name: "8.1.1 more content than content-length", reset: protocol, do: func(r *raw) {
			r.open(1, false, call(duplexMethod, "content-length", "1")...)
			r.must(r.WriteData(1, false, []byte("xx")))
		}},
		{name: "8.1.1 less content than content-length", reset: protocol, do: func(r *raw) {
			r.open(1, false, call(duplexMethod, "content-length", "6")...)
			r.must(errors.Join(r.WriteData(1, false, []byte("xx")), r.WriteData(1, true, []byte("xx"))))
		}},
		{name: "8.1.1 content-length without content", reset: protocol, do: field("content-length", "1")},
		{name: "8.1.1 an invalid content-length", reset: protocol, do: field("content-length", "x")},
		{name: "8.2.1 upper case", reset: protocol, do: field("X-Test", "y")},
		{name: "8.2.2 Connection", reset: protocol, do: field("connection", "keep-alive")},
		{name: "8.2.2 Transfer-Encoding", reset: protocol, do: field("transfer-encoding", "chunked")},
		{name: "8.2.2 TE", reset: protocol, do: field("te", "gzip")},
		{name: "8.3 an unknown pseudo-header", reset: protocol, do: only(append([]string{":test", "x"}, call(duplexMethod)...)...)},
		{name: "8.3 a pseudo-header of answers", reset: protocol, do: only(append([]string{":status", "200"}, call(duplexMethod)...)...)},
		{name: "8.3 a pseudo-header after others", reset: protocol, do: field(":authority", "y")},
		{name: "8.3.1 an empty path", reset: protocol, do: only(call("")...)},
		{name: "8.3.1 no method", reset: protocol, do: only(call(duplexMethod)[2:]...)},
		{name: "8.3.1 no scheme", reset: protocol, do: only(append([]string{":method", "POST"}, call(duplexMethod)[4:]...)...)},
		{name: "8.3.1 no path", reset: protocol, do: only(append([]string{":method", "POST", ":scheme", "http"}, call(duplexMethod)[6:]...)...)},
		{name: "8.3.1 two methods", reset: protocol, do: only(append([]string{":method", "POST"}, call(duplexMethod)...)...)},
	})
}

// RFC 7541: header compression.
func TestHPACK(t *testing.T) {
	block := func(prefix []byte, suffix ...byte) func(*raw) {
		return func(r *raw) {
			b := append(prefix, r.block(call(duplexMethod)...)...)
			r.frame(http2.FrameHeaders, 5, 1, append(b, suffix...)...)
		}
	}
	check(t, []rule{
		{name: "2.3.3 an index above the tables", goAway: hpackErr, do: block(nil, 0xff, 0x0f)},
		{name: "4.2 a size update at the end", goAway: hpackErr, do: block(nil, 0x20)},
		{name: "5.2 padding of more than seven bits", goAway: hpackErr, do: block(nil, 0x00, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x84, 0x49, 0x50, 0x9f, 0xff)},
		{name: "5.2 padding that is not of ones", goAway: hpackErr, do: block(nil, 0x00, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x83, 0x49, 0x50, 0x90)},
		{name: "6.1 index 0", goAway: hpackErr, do: block(nil, 0x80)},
		{name: "6.3 a size update above the limit", goAway: hpackErr, do: block([]byte{0x3f, 0xe1, 0xff, 0x03})},
		{name: "6.3 a size update at the beginning", do: block([]byte{0x20})},
	})
}

// Requests that are not valid calls are answered as the gRPC protocol requires.
func TestNoCalls(t *testing.T) {
	address, _ := serve(t, config())
	replace := func(name, value string) []string {
		fields := call(unaryMethod)
		for i := 0; i < len(fields); i += 2 {
			if fields[i] == name {
				fields[i+1] = value
			}
		}
		return fields
	}
	no := func(name string) (fields []string) {
		all := call(unaryMethod)
		for i := 0; i < len(all); i += 2 {
			if all[i] != name {
				fields = append(fields, all[i], all[i+1])
			}
		}
		return fields
	}
	for name, c := range map[string]struct {
		fields       []string
		http, status string
		message      string
	}{
		"another content type":  {replace("content-type", "application/json"), "415", "3", `invalid gRPC request content-type "application/json"`},
		"almost the type":       {replace("content-type", "application/grpcx"), "415", "3", ""},
		"no content type":       {no("content-type"), "415", "3", `invalid gRPC request content-type ""`},
		"GET":                   {replace(":method", "GET"), "405", "13", ""},
		"no authority":          {no(":authority"), "400", "13", "no host or :authority header present"},
		"two hosts":             {call(unaryMethod, "host", "a", "host", "b"), "400", "13", ""},
		"a timeout of no time":  {call(unaryMethod, "grpc-timeout", "0S"), "200", "4", "context deadline exceeded"},
		"a timeout of no unit":  {call(unaryMethod, "grpc-timeout", "1x"), "400", "13", ""},
		"a timeout of words":    {call(unaryMethod, "grpc-timeout", "xS"), "400", "13", ""},
		"a long timeout":        {call(unaryMethod, "grpc-timeout", "123456789S"), "400", "13", ""},
		"invalid binary":        {call(unaryMethod, "x-bin", "!"), "400", "13", ""},
		"an unknown compressor": {call(unaryMethod, "grpc-encoding", "zip"), "200", "12", `grpc: Decompressor is not installed for grpc-encoding "zip"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := greet(t, address)
			r.open(1, false, c.fields...)
			h, _, _ := r.answer(1)
			if h[":status"] != c.http || h["grpc-status"] != c.status || c.message != "" && h["grpc-message"] != c.message {
				t.Errorf("%v, want %s, %s, %q", h, c.http, c.status, c.message)
			}
			if f, ok := r.next().(*http2.RSTStreamFrame); !ok || f.ErrCode != http2.ErrCodeNo {
				t.Errorf("then %v, want RST_STREAM with NO_ERROR", f)
			}
		})
	}
	for name, subtype := range map[string]string{"": "application/grpc", "+proto": "application/grpc+proto", ";x": "application/grpc+x"} {
		r := greet(t, address)
		r.open(1, false, replace("content-type", "application/grpc"+name)...)
		r.must(r.WriteData(1, true, message(new(pb.SimpleRequest))))
		if h, _, _ := r.answer(1); h["grpc-status"] != "0" || h["content-type"] != subtype {
			t.Errorf("%q: %v", name, h)
		}
	}
}

// Malformed messages end their call with the right status.
func TestMalformedMessages(t *testing.T) {
	address, _ := serve(t, config())
	for name, c := range map[string]struct {
		sent            []byte
		status, message string
	}{
		"none":                      {nil, "13", "no request message"},
		"two":                       {append(message(new(pb.SimpleRequest)), message(new(pb.SimpleRequest))...), "13", "multiple request messages"},
		"half a head":               {[]byte{0, 0}, "13", "unexpected EOF"},
		"half a message":            {[]byte{0, 0, 0, 0, 9, 1}, "13", "unexpected EOF"},
		"too large":                 {[]byte{0, 0, 0x80, 0, 1}, "8", "larger than max (8388609 vs. 8388608)"},
		"compressed with nothing":   {[]byte{1, 0, 0, 0, 0}, "13", "compressed flag set with identity or empty encoding"},
		"of an unknown form":        {[]byte{2, 0, 0, 0, 0}, "13", "unexpected payload format 2"},
		"that proto cannot decode":  {[]byte{0, 0, 0, 0, 1, 0xff}, "13", "failed to unmarshal"},
		"that ends within a varint": {[]byte{0, 0, 0, 0, 2, 0x10, 0x80}, "13", "failed to unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			r := greet(t, address)
			r.open(1, false, call(unaryMethod)...)
			r.must(r.WriteData(1, true, c.sent))
			if h, _, _ := r.answer(1); h["grpc-status"] != c.status || !strings.Contains(h["grpc-message"], c.message) {
				t.Errorf("%v, want %s %q", h, c.status, c.message)
			}
		})
	}
	r := greet(t, address)
	r.open(1, false, call(unaryMethod, "grpc-encoding", "gzip")...)
	r.must(r.WriteData(1, true, []byte{1, 0, 0, 0, 3, 'x', 'y', 'z'}))
	if h, _, _ := r.answer(1); h["grpc-status"] != "13" || !strings.Contains(h["grpc-message"], "failed to decompress") {
		t.Errorf("%v", h)
	}
}
