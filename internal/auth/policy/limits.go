package policy

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// Limits bound the resources of one identity at one node. 0: no bound.
type Limits struct {
	// Connections are connections with calls of the identity.
	Connections int64
	// Streams are open calls of all kinds.
	Streams int64
	// Watches are open watches of both APIs.
	Watches int64
	// CreatesPerSecond are new watches, with a burst of a second's worth. Each costs a node some 40 µs and 3 KB
	// of garbage, and all that wait for the same answer of etcd run together.
	CreatesPerSecond int64
	// ListBytes are bytes of lists being built or sent.
	ListBytes int64
	// WatchKeyBytes are bytes of the keys of open watches.
	WatchKeyBytes int64
	// RequestBytes is the size of the largest message of a request.
	RequestBytes int64
	// PendingBytes are bytes that the node holds until the identity reads them or ends their call;
	// HalfOfBudget: half of the budget for all clients.
	PendingBytes int64
}

// HalfOfBudget is the default PendingBytes of an identity.
const HalfOfBudget = budget.HalfOfTotal

// DefaultLimits apply when the policy sets no limits. A well-behaved client reaches none but
// CreatesPerSecond, which delays clients with thousands of watches.
func DefaultLimits() Limits {
	return Limits{Connections: 1000, Streams: 10_000, Watches: 1_000_000, CreatesPerSecond: 2000, ListBytes: 512 << 20, WatchKeyBytes: 64 << 20, PendingBytes: HalfOfBudget}
}

// String returns the limits as the policy names them.
func (l Limits) String() string {
	request, pending := "that of --max-message-bytes", "half of --max-client-bytes"
	if l.RequestBytes > 0 {
		request = config.Size(l.RequestBytes).String()
	}
	switch {
	case l.PendingBytes == 0:
		pending = "all of --max-client-bytes"
	case l.PendingBytes > 0:
		pending = config.Size(l.PendingBytes).String()
	}
	return fmt.Sprintf("connections %d, streams %d, watches %d, creates_per_second %d, list_bytes %s, watch_key_bytes %s, request_bytes %s, pending_bytes %s",
		l.Connections, l.Streams, l.Watches, l.CreatesPerSecond, config.Size(l.ListBytes), config.Size(l.WatchKeyBytes), request, pending)
}

// partial is a set of limits; nil: not set.
type partial struct {
	connections, streams, watches, creates, listBytes, watchKeyBytes, requestBytes, pendingBytes *int64
}

// over returns l with the limits of p that are set.
func (p partial) over(l Limits) Limits {
	for _, f := range []struct{ set, at *int64 }{
		{p.connections, &l.Connections},
		{p.streams, &l.Streams},
		{p.watches, &l.Watches},
		{p.creates, &l.CreatesPerSecond},
		{p.listBytes, &l.ListBytes},
		{p.watchKeyBytes, &l.WatchKeyBytes},
		{p.requestBytes, &l.RequestBytes},
		{p.pendingBytes, &l.PendingBytes},
	} {
		if f.set != nil {
			*f.at = *f.set
		}
	}
	return l
}

func (r *reader) limits(n *yaml.Node, at string) (p partial) {
	count := func(to **int64) func(*yaml.Node, string) {
		return func(n *yaml.Node, at string) {
			c, err := strconv.ParseInt(n.Value, 10, 64)
			if n.Kind != yaml.ScalarNode || err != nil || c < 0 {
				r.failf(n, at, "want a whole number; 0: no limit")
			}
			*to = &c
		}
	}
	bytes := func(to **int64) func(*yaml.Node, string) {
		return func(n *yaml.Node, at string) {
			var size config.Size
			if text, ok := r.text(n, at); !ok {
				return
			} else if err := size.Set(text); err != nil {
				r.failf(n, at, "%v", err)
			}
			bytes := int64(size)
			*to = &bytes
		}
	}
	r.fields(n, at,
		field{"connections", count(&p.connections)}, field{"streams", count(&p.streams)}, field{"watches", count(&p.watches)},
		field{"creates_per_second", count(&p.creates)},
		field{"list_bytes", bytes(&p.listBytes)}, field{"watch_key_bytes", bytes(&p.watchKeyBytes)},
		field{"request_bytes", bytes(&p.requestBytes)}, field{"pending_bytes", bytes(&p.pendingBytes)},
	)
	return p
}
