package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

func contentLength(n int) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n", n) }

// rangeJSON lists everything, in JSON.
func rangeJSON() []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `{"key":%q,"range_end":%q}`, b64([]byte(everything)), b64([]byte(everythingEnd)))
}

// jsonUnread sends requests of the JSON API, and reads no answer.
func jsonUnread(conns int, path string, body []byte) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		return a.many(ctx, conns, func(ctx context.Context, _ int) error {
			c, err := a.post(ctx, path, len(body), body)
			if err != nil {
				return err
			}
			defer c.Close()
			a.did("requests", 1)
			<-ctx.Done()
			return nil
		})
	}
}

// jsonFlood sends requests of the JSON API, and reads the status of each answer.
func jsonFlood(conns int, path string, body []byte) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		return a.many(ctx, conns, func(ctx context.Context, _ int) error {
			c, err := a.post(ctx, path, len(body), body)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				return err
			}
			_ = r.Body.Close() // the connection ends anyway
			a.did("answers "+r.Status[:3], 1)
			return nil
		})
	}
}

// emptyCompares returns a transaction with the maximum number of comparisons in a request: three
// bytes each, and hundreds when decoded.
func emptyCompares() []byte {
	const size = 4<<20 - 100
	return []byte(`{"compare":[{}` + strings.Repeat(`,{}`, size/3) + `]}`)
}

// nestedJSON returns a transaction within the given number of transactions.
func nestedJSON(levels int) []byte {
	return []byte(strings.Repeat(`{"success":[{"request_txn":`, levels) + "{}" + strings.Repeat(`}]}`, levels))
}

// jsonEndless sends requests whose bodies never end.
func jsonEndless(ctx context.Context, a *attacker) error {
	return a.many(ctx, 200, func(ctx context.Context, _ int) error {
		c, err := a.post(ctx, "/v3/kv/range", 1<<20, []byte(`{"key":"`))
		if err != nil {
			return err
		}
		defer c.Close()
		a.did("requests", 1)
		for pause(ctx, 100*time.Millisecond) == nil {
			if _, err := c.Write(bytes.Repeat([]byte("A"), 4)); err != nil {
				return nil // the node may end the connection
			}
		}
		return nil
	})
}

// pages writes like pages of another origin in a browser whose user may write: with a request, with
// a WebSocket, and without TLS also under a foreign name that resolves to the node (DNS rebinding).
func pages(ctx context.Context, a *attacker) error {
	const origin = "Origin: https://page.example.org\r\nSec-Fetch-Site: cross-site\r\n"
	body := fmt.Sprintf(`{"key":%q}`, base64.StdEncoding.EncodeToString([]byte("/data/page")))
	put := "POST /v3/kv/put HTTP/1.1\r\nHost: %s\r\nContent-Type: text/plain\r\n%s" + contentLength(len(body)) + body
	requests := []string{
		fmt.Sprintf(put, a.Client, origin),
		"GET /v3/watch HTTP/1.1\r\nHost: " + a.Client + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" + origin + "\r\n",
	}
	if a.tls == nil {
		requests = append(requests, fmt.Sprintf(put, "page.example.org", ""))
	}
	return a.many(ctx, len(requests), func(ctx context.Context, i int) error {
		c, err := a.tcp(ctx, a.Client, "http/1.1")
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := io.WriteString(c, requests[i]); err != nil {
			return err
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		_ = r.Body.Close() // the connection ends anyway
		if r.StatusCode != http.StatusForbidden && r.StatusCode != http.StatusMisdirectedRequest {
			a.got("a page of another origin was answered " + r.Status)
		}
		a.did("answers "+r.Status[:3], 1)
		return nil
	})
}

// watchJSON watches the keys of the crowd's writer, in JSON.
func watchJSON(from int) []byte {
	b64 := base64.StdEncoding.EncodeToString
	key, end := "/crowd/", "/crowd0"
	if from > 0 {
		key, end = everything, everythingEnd
	}
	return fmt.Appendf(nil, `{"create_request":{"key":%q,"range_end":%q,"start_revision":"%d"}}`, b64([]byte(key)), b64([]byte(end)), from)
}
