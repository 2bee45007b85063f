package hostile

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// connections opens n connections and makes no call.
func connections(n int) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		return a.many(ctx, 50, func(ctx context.Context, _ int) error {
			for range n / 50 {
				h, err := a.h2(ctx)
				if err != nil {
					return err
				}
				if _, err := h.ReadFrame(); err != nil {
					return err
				}
				a.did("connections", 1)
			}
			<-ctx.Done()
			return nil
		})
	}
}

// halfOpen opens connections and sends the first byte of a handshake or of a request.
func halfOpen(ctx context.Context, a *attacker) error {
	hello := []byte("P")
	if a.tls != nil {
		hello = []byte{0x16}
	}
	return a.many(ctx, 50, func(ctx context.Context, _ int) error {
		var all []net.Conn
		defer func() {
			for _, c := range all {
				_ = c.Close()
			}
		}()
		for range 100 {
			c, err := connect(ctx, a.Client)
			if err != nil {
				return err
			}
			all = append(all, c)
			if _, err := c.Write(hello); err == nil {
				a.did("connections", 1)
			}
		}
		return pause(ctx, time.Second)
	})
}

// idleStreams opens watch streams without watches.
func idleStreams(ctx context.Context, a *attacker) error {
	const conns, streams = 5, 10_000
	return a.many(ctx, conns, func(ctx context.Context, _ int) error {
		h, err := a.h2(ctx)
		if err != nil {
			return err
		}
		defer h.conn.Close()
		h.discard()
		for range streams / 100 {
			for range 100 {
				h.open(etcdserverpb.Watch_Watch_FullMethodName)
			}
			if err := h.send(); err != nil {
				return err
			}
			a.did("streams", 100)
		}
		<-ctx.Done()
		return nil
	})
}

// healthWatches watches the node's health on many streams.
func healthWatches(ctx context.Context, a *attacker) error {
	conn, err := a.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	client := healthgrpc.NewHealthClient(conn)
	return a.many(ctx, 5000, func(ctx context.Context, _ int) error {
		s, err := client.Watch(ctx, &healthgrpc.HealthCheckRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		a.was("watches", err)
		if err != nil {
			return pause(ctx, time.Second)
		}
		<-ctx.Done()
		return nil
	})
}

// manyWatches creates watches without events, on streams that are read.
func manyWatches(ctx context.Context, a *attacker) error {
	const streams, each = 20, 50_000
	return a.onStreams(ctx, streams, func(ctx context.Context, _ int, s grpc.ClientStream) error {
		for range each {
			if err := s.SendMsg(raw(createRequest(etcdAPI, 0, everything, everythingEnd, 0))); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return nil
	})
}

// countWatches reads a stream and counts the created and the refused watches.
func (a *attacker) countWatches(s grpc.ClientStream) {
	for {
		var r etcdserverpb.WatchResponse
		switch err := s.RecvMsg(&r); {
		case err != nil:
			return
		case r.Canceled:
			a.did("cancelled", 1)
		case r.Created:
			a.did("watches", 1)
		}
	}
}

// unreadWatches watches the keys of the crowd's writer, on several streams of each connection, and
// reads nothing.
func unreadWatches(conns, streams int) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		return a.many(ctx, conns, func(ctx context.Context, _ int) error {
			h, err := a.h2(ctx)
			if err != nil {
				return err
			}
			defer h.conn.Close()
			for range streams {
				h.call(etcdserverpb.Watch_Watch_FullMethodName, createRequest(etcdAPI, 0, "/crowd/", "/crowd0", 0), true)
			}
			if err := h.send(); err != nil {
				return err
			}
			a.did("watches", streams)
			<-ctx.Done()
			return nil
		})
	}
}

// unreadWindows watches the keys of the crowd's writer through both APIs, on streams with small
// windows, like a program that has stopped reading.
func unreadWindows(ctx context.Context, a *attacker) error {
	const conns, streams, window = 10, 100, 64<<10 - 1
	return a.many(ctx, conns, func(ctx context.Context, i int) error {
		h, err := a.h2(ctx)
		if err != nil {
			return err
		}
		defer h.conn.Close()
		h.discard()
		method, api := etcdserverpb.Watch_Watch_FullMethodName, etcdAPI
		if i%2 == 1 {
			method, api = pb.CacheService_Watch_FullMethodName, nativeAPI
		}
		_ = h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}) // to a buffer
		for range streams {
			h.call(method, createRequest(api, 1, "/crowd/", "/crowd0", 0), true)
		}
		if err := h.send(); err != nil {
			return err
		}
		a.did("watches", streams)
		<-ctx.Done()
		return nil
	})
}

// held requests a page of the HTTP port on many connections. With read it reads one answer and
// keeps the connection; otherwise it sends requests and reads no answer.
func held(conns int, path string, read bool) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		request := []byte("GET " + path + " HTTP/1.1\r\nHost: node\r\n\r\n")
		return a.many(ctx, conns, func(ctx context.Context, _ int) error {
			c, err := a.tcp(ctx, a.HTTP, "http/1.1")
			if err != nil {
				return err
			}
			defer c.Close()
			for ctx.Err() == nil {
				if _, err := c.Write(request); err != nil {
					return err
				}
				a.did("requests", 1)
				if read {
					_, _ = io.Copy(io.Discard, c) // until the node ends the connection
					return nil
				}
			}
			return nil
		})
	}
}

// slowHTTP sends the header of a request byte by byte, on many connections to a port.
func slowHTTP(addr func(*attacker) string) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		request := []byte("GET /readyz HTTP/1.1\r\nHost: node\r\nX-Slow: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy")
		return a.many(ctx, 600, func(ctx context.Context, _ int) error {
			c, err := a.tcp(ctx, addr(a), "http/1.1")
			if err != nil {
				return err
			}
			defer c.Close()
			for i := range request {
				if _, err := c.Write(request[i : i+1]); err != nil {
					return nil // the node may end the connection
				}
				a.did("bytes", 1)
				if err := pause(ctx, 500*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func httpPort(a *attacker) string   { return a.HTTP }
func clientPort(a *attacker) string { return a.Client }

// post sends a request of the JSON API and returns the connection with its answer unread.
func (a *attacker) post(ctx context.Context, path string, length int, body []byte) (net.Conn, error) {
	c, err := a.tcp(ctx, a.Client, "http/1.1")
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Client+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	head := "POST " + req.URL.RequestURI() + " HTTP/1.1\r\nHost: " + a.Client + "\r\nContent-Type: application/json\r\n"
	if _, err := io.WriteString(c, head+contentLength(length)); err != nil {
		_ = c.Close()
		return nil, err
	}
	if _, err := c.Write(body); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// refusals floods the log of refused calls with long keys.
func refusals(ctx context.Context, a *attacker) error {
	key := bytes.Repeat([]byte("k"), 900<<10) // two of them still fit into a request
	conn, err := a.dial()
	if err != nil {
		return err
	}
	request := encoded(&etcdserverpb.RangeRequest{Key: key, RangeEnd: append(key, 'x')})
	return a.many(ctx, 8, func(ctx context.Context, _ int) error {
		err := conn.Invoke(ctx, etcdserverpb.KV_Range_FullMethodName, raw(request), new(wire.Encoded))
		a.was("lists", err)
		return nil
	})
}
