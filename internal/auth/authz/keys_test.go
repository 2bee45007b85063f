package authz_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// The keys of all watches of a node are bounded even without a policy, and count until their watch ends.
func TestWatchKeysAreBounded(t *testing.T) {
	b := budget.New(400)
	r := kv.Range{Start: strings.Repeat("a", 30), End: strings.Repeat("b", 30)}
	if err := authz.OpenWatch(b, budget.Client{}, nil, r); err != nil {
		t.Fatal(err)
	}
	var limit *kv.LimitError
	if err := authz.OpenWatch(b, budget.Client{}, nil, r); !errors.As(err, &limit) || limit.Limit != budget.Flag {
		t.Errorf("a watch over the limit: %v", err)
	}
	if held := b.Held(budget.WatchKeys); held != 60 {
		t.Errorf("%d bytes are held", held)
	}
	authz.CloseWatch(b, budget.Client{}, nil, r)
	if err := authz.OpenWatch(b, budget.Client{}, nil, r); err != nil || b.Held(budget.WatchKeys) != 60 {
		t.Errorf("after the first has ended: %v, %d bytes", err, b.Held(budget.WatchKeys))
	}
	if err := authz.OpenWatch(nil, budget.Client{}, nil, r); err != nil {
		t.Error(err)
	}
	authz.CloseWatch(nil, budget.Client{}, nil, r)
}

// Watches are bounded in addition to their keys; a watch that was refused for its keys, or has ended, holds nothing.
func TestWatchesAreBounded(t *testing.T) {
	const each = 5 << 10
	b := budget.New(64 << 10)
	b.BoundWatches(4 * each)
	holder := budget.Client{Name: "a", Max: budget.HalfOfTotal}
	short, long := kv.Range{Start: "a"}, kv.Range{Start: strings.Repeat("a", 4<<10)}
	limit := new(kv.LimitError)
	if err := authz.OpenWatch(b, holder, nil, long); err != nil {
		t.Fatal(err)
	}
	for range 3 { // one leaked refusal would fill the client's part
		if err := authz.OpenWatch(b, holder, nil, long); !errors.As(err, &limit) || !strings.Contains(limit.Limit, budget.Flag) {
			t.Fatalf("too many keys: %v", err)
		}
	}
	if err := authz.OpenWatch(b, holder, nil, short); err != nil {
		t.Fatal(err)
	}
	if err := authz.OpenWatch(b, holder, nil, short); !errors.As(err, &limit) || limit.Limit != "half of "+budget.WatchFlag || limit.Max != 2*each {
		t.Errorf("a watch over the limit: %v", err)
	}
	if held := b.Held(budget.Watches); held != 2*each {
		t.Errorf("%d bytes are held", held)
	}
	authz.CloseWatch(b, holder, nil, short)
	authz.CloseWatch(b, holder, nil, long)
	if held := b.Held(budget.Watches) + b.Held(budget.WatchKeys); held != 0 {
		t.Errorf("%d bytes are held without a watch", held)
	}
}

// The keys of a caller's watches count against its limit until their watch ends. A refused watch counts neither
// itself nor its keys.
func TestWatchKeysOfACallerAreBounded(t *testing.T) {
	r := start(t, granting("/a/", "limits: {watches: 2, watch_key_bytes: 100}\n"), nil)
	ctx, gone := r.connect()
	defer gone()
	c := r.caller(ctx)
	b, holder := budget.New(1600), authz.Holder(ctx, c)
	long, short := kv.Range{Start: strings.Repeat("a", 30), End: strings.Repeat("b", 30)}, kv.Range{Start: "a", End: "b"}
	opens := func(what string, of kv.Range, limit string) {
		t.Helper()
		err := authz.OpenWatch(b, holder, c, of)
		refused := new(kv.LimitError)
		if limit == "" && err != nil || limit != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Limit, limit)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	opens("the first", long, "")
	opens("too many keys", long, "watch_key_bytes")
	opens("too many keys, again", long, "watch_key_bytes")
	opens("the second", short, "") // refused watches do not count
	opens("too many watches", short, "watches")
	if held := b.Held(budget.WatchKeys); held != 62 {
		t.Errorf("%d bytes are held", held)
	}
	authz.CloseWatch(b, holder, c, long)
	opens("after the first has ended", long, "")
	authz.CloseWatch(b, holder, c, long)
	authz.CloseWatch(b, holder, c, short)
	if held := b.Held(budget.WatchKeys); held != 0 {
		t.Errorf("%d bytes are held without a watch", held)
	}
}

// A key of the maximum length is accepted.
func TestTheLongestWatchKey(t *testing.T) {
	if err := authz.CheckWatchKey("key", make([]byte, authz.MaxWatchKey)); err != nil {
		t.Error(err)
	}
	invalid := new(kv.InvalidError)
	if err := authz.CheckWatchKey("range_end", make([]byte, authz.MaxWatchKey+1)); !errors.As(err, &invalid) || invalid.Field != "range_end" {
		t.Errorf("a longer one: %v", err)
	}
}

// A message may be exactly as large as the policy allows.
func TestMessagesOfACallerAreBounded(t *testing.T) {
	r := start(t, granting("/a/", "limits: {request_bytes: 100}\n"), nil)
	ctx, gone := r.connect()
	defer gone()
	c := r.caller(ctx)
	invalid := new(kv.InvalidError)
	if err := c.Fits(101); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "request_bytes") {
		t.Errorf("101 bytes: %v", err)
	}
	if err := c.Fits(100); err != nil || !c.Bounded() {
		t.Errorf("100 bytes: %v", err)
	}
	if n := r.a.Status().Limited["request_bytes"]; n != 1 {
		t.Errorf("%d refusals are counted", n)
	}
	var none *authz.Caller
	if err := none.Fits(1 << 40); err != nil || none.Bounded() {
		t.Errorf("without a policy: %v", err)
	}
}

// The memory of a call counts for its identity, with the policy's limit, or else for its address without the
// port, or its IPv6 network.
func TestBytesCountForTheIdentityOrTheAddress(t *testing.T) {
	r := start(t, granting("/a/", "limits: {pending_bytes: 1MiB}\n"), nil)
	ctx, gone := r.connect()
	defer gone()
	if h := authz.Holder(ctx, r.caller(ctx)); h != (budget.Client{Name: policy.Anonymous, Max: 1 << 20}) {
		t.Errorf("%+v", h)
	}
	for from, name := range map[string]string{
		"192.0.2.7:1": "192.0.2.7", "192.0.2.7:2": "192.0.2.7", "[2001:db8::1]:1": "2001:db8::/64", "[2001:db8::a:b:c:d]:2": "2001:db8::/64",
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))})
		if h := authz.Holder(ctx, nil); h != (budget.Client{Name: name, Max: budget.HalfOfTotal}) {
			t.Errorf("%s: %+v", from, h)
		}
	}
}
