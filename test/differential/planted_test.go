package differential_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/test/differential"
)

// always makes a plant that changes every response of one type.
func always[M proto.Message](change func(c *call, m M)) func(*call, proto.Message) []proto.Message {
	return func(c *call, m proto.Message) []proto.Message {
		change(c, m.(M))
		return []proto.Message{m}
	}
}

func onRange(change func(r *pb.RangeResponse)) plant {
	return plant{method: "KV.Range", response: always(func(_ *call, r *pb.RangeResponse) { change(r) }), want: "read etcdserverpb.KV.Range"}
}

func onHeader(change func(h *pb.ResponseHeader)) plant {
	return onRange(func(r *pb.RangeResponse) { change(r.Header) })
}

func onWatch(want string, change func(c *call, r *pb.WatchResponse) []proto.Message) plant {
	return plant{method: "Watch.Watch", want: want, response: func(c *call, m proto.Message) []proto.Message {
		return change(c, m.(*pb.WatchResponse))
	}}
}

func onEvents(want string, change func(c *call, r *pb.WatchResponse) []proto.Message) plant {
	return onWatch(want, func(c *call, r *pb.WatchResponse) []proto.Message {
		if len(r.Events) == 0 {
			return []proto.Message{r}
		}
		return change(c, r)
	})
}

// clone returns a copy for changes.
func clone[M proto.Message](m M) M { return proto.Clone(m).(M) }

func plants() map[string]plant {
	is := func(ok bool, r *pb.WatchResponse) []proto.Message {
		if ok {
			return nil
		}
		return []proto.Message{r}
	}
	return map[string]plant{
		"count of the page": onRange(func(r *pb.RangeResponse) {
			if r.More {
				r.Count = int64(len(r.Kvs))
			}
		}),
		"no more":            onRange(func(r *pb.RangeResponse) { r.More = false }),
		"a key is missing":   onRange(func(r *pb.RangeResponse) { r.Kvs = r.Kvs[:max(0, len(r.Kvs)-1)] }),
		"another order":      onRange(func(r *pb.RangeResponse) { swap(r.Kvs) }),
		"another value":      onRange(func(r *pb.RangeResponse) { each(r.Kvs, func(k *mvccpb.KeyValue) { k.Value = append(k.Value, 0) }) }),
		"no lease":           onRange(func(r *pb.RangeResponse) { each(r.Kvs, func(k *mvccpb.KeyValue) { k.Lease = 0 }) }),
		"version":            onRange(func(r *pb.RangeResponse) { each(r.Kvs, func(k *mvccpb.KeyValue) { k.Version++ }) }),
		"create revision":    onRange(func(r *pb.RangeResponse) { each(r.Kvs, func(k *mvccpb.KeyValue) { k.CreateRevision-- }) }),
		"no header":          onRange(func(r *pb.RangeResponse) { r.Header = nil }),
		"header of before":   onHeader(func(h *pb.ResponseHeader) { h.Revision-- }),
		"header of later":    onHeader(func(h *pb.ResponseHeader) { h.Revision++ }),
		"another cluster":    onHeader(func(h *pb.ResponseHeader) { h.ClusterId++ }),
		"no raft term":       onHeader(func(h *pb.ResponseHeader) { h.RaftTerm = 0 }),
		"an unknown field":   onRange(func(r *pb.RangeResponse) { r.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 0x01}) }),
		"the text of errors": {method: "KV.Range", want: "ends", end: func(err error) error { return status.Error(status.Code(err), "sorry") }},
		"the code of errors": {method: "KV.Range", want: "ends", end: func(err error) error { return status.Error(codes.Unknown, status.Convert(err).Message()) }},
		"a read of before": {
			method: "KV.Range", want: "read etcdserverpb.KV.Range",
			request: func(m proto.Message) {
				if r := m.(*pb.RangeRequest); r.Revision == 0 && !r.Serializable {
					r.Revision = 2
				}
			},
		},
		"an option is ignored": {method: "KV.Range", want: "read etcdserverpb.KV.Range", request: func(m proto.Message) { m.(*pb.RangeRequest).MinModRevision = 0 }},
		"a serializable read that is wrong": {
			method: "KV.Range", want: "read etcdserverpb.KV.Range",
			response: always(func(c *call, r *pb.RangeResponse) {
				if c.requests[0].(*pb.RangeRequest).Serializable {
					r.Header.Revision--
					r.Kvs = r.Kvs[:max(0, len(r.Kvs)-1)]
				}
			}),
		},
		"a stream without a key": {method: "KV.RangeStream", want: "RangeStream", response: always(func(_ *call, r *pb.RangeStreamResponse) {
			r.RangeResponse.Kvs = r.RangeResponse.Kvs[:max(0, len(r.RangeResponse.Kvs)-1)]
		})},
		"a stream with a header in every chunk": {method: "KV.RangeStream", want: "has fields of the last", response: func(_ *call, m proto.Message) []proto.Message {
			return []proto.Message{m, clone(m)}
		}},

		"a write is lost": {method: "KV.Put", want: "write etcdserverpb.KV.Put", request: func(m proto.Message) { m.(*pb.PutRequest).Key = nil }},
		"no previous value of a put": {method: "KV.Put", want: "write etcdserverpb.KV.Put", response: always(func(_ *call, r *pb.PutResponse) {
			r.PrevKv = nil
		})},
		"the cluster of a put": {method: "KV.Put", want: "of an etcd with", response: always(func(_ *call, r *pb.PutResponse) { r.Header.ClusterId++ })},
		"deleted":              {method: "KV.DeleteRange", want: "write etcdserverpb.KV.DeleteRange", response: always(func(_ *call, r *pb.DeleteRangeResponse) { r.Deleted = 1 })},
		"succeeded":            {method: "KV.Txn", want: "write etcdserverpb.KV.Txn", response: always(func(_ *call, r *pb.TxnResponse) { r.Succeeded = true })},
		"the end of a txn":     {method: "KV.Txn", want: "ends", end: func(error) error { return status.Error(codes.InvalidArgument, "etcdserver: bad") }},
		"not compacted":        {method: "KV.Compact", want: "", request: func(m proto.Message) { m.(*pb.CompactionRequest).Revision = 1 }},
		"granted TTL":          {method: "Lease.LeaseTimeToLive", want: "LeaseTimeToLive", response: always(func(_ *call, r *pb.LeaseTimeToLiveResponse) { r.GrantedTTL++ })},
		"TTL above granted":    {method: "Lease.LeaseTimeToLive", want: "LeaseTimeToLive", response: always(func(_ *call, r *pb.LeaseTimeToLiveResponse) { r.TTL = r.GrantedTTL + 1 })},
		"keys of a lease":      {method: "Lease.LeaseTimeToLive", want: "LeaseTimeToLive", response: always(func(_ *call, r *pb.LeaseTimeToLiveResponse) { r.Keys = nil })},
		"a lease too many": {method: "Lease.LeaseLeases", want: "LeaseLeases", response: always(func(_ *call, r *pb.LeaseLeasesResponse) {
			r.Leases = append(r.Leases, &pb.LeaseStatus{ID: 999})
		})},
		"kept alive only once": {method: "Lease.LeaseKeepAlive", want: "LeaseKeepAlive", response: func(c *call, m proto.Message) []proto.Message {
			if c.n > 1 {
				return nil
			}
			return []proto.Message{m}
		}},

		"an event is lost": onEvents("no events of revision", func(c *call, r *pb.WatchResponse) []proto.Message { return is(c.n%7 == 3, r) }),
		"an event twice":   onEvents(" after ", func(_ *call, r *pb.WatchResponse) []proto.Message { return []proto.Message{r, clone(r)} }),
		"one event of two": onEvents("events of revision", func(_ *call, r *pb.WatchResponse) []proto.Message {
			if n := len(r.Events); n > 1 && r.Events[0].Kv.ModRevision == r.Events[n-1].Kv.ModRevision {
				r.Events = r.Events[:n-1]
			}
			return []proto.Message{r}
		}),
		"a revision in two responses": onEvents("revision", func(_ *call, r *pb.WatchResponse) []proto.Message {
			second := clone(r)
			r.Events, second.Events = r.Events[:len(r.Events)/2], second.Events[len(r.Events)/2:]
			if len(r.Events) == 0 {
				return []proto.Message{second}
			}
			return []proto.Message{r, second}
		}),
		"another order in a revision": onEvents("of revision", func(_ *call, r *pb.WatchResponse) []proto.Message {
			if n := len(r.Events); n > 1 && r.Events[0].Kv.ModRevision == r.Events[n-1].Kv.ModRevision {
				swap(r.Events)
			}
			return []proto.Message{r}
		}),
		"revisions swapped": onEvents("revision", func(c *call, r *pb.WatchResponse) []proto.Message {
			if c.kept == nil {
				c.kept = r
				return nil
			}
			kept := c.kept
			c.kept = nil
			return []proto.Message{r, kept}
		}),
		"a delete becomes a put": onEvents("event", func(_ *call, r *pb.WatchResponse) []proto.Message {
			each(r.Events, func(e *mvccpb.Event) { e.Type = mvccpb.Event_PUT })
			return []proto.Message{r}
		}),
		"another previous value": onEvents("event", func(_ *call, r *pb.WatchResponse) []proto.Message {
			each(r.Events, func(e *mvccpb.Event) {
				if e.PrevKv != nil {
					e.PrevKv.Value = append(e.PrevKv.Value, 1)
				}
			})
			return []proto.Message{r}
		}),
		"previous values without a request":   {method: "Watch.Watch", want: "event", request: onCreate(func(c *pb.WatchCreateRequest) { c.PrevKv = true })},
		"filters are ignored":                 {method: "Watch.Watch", want: "revision", request: onCreate(func(c *pb.WatchCreateRequest) { c.Filters = nil })},
		"keys of others":                      {method: "Watch.Watch", want: "revision", request: onCreate(func(c *pb.WatchCreateRequest) { c.RangeEnd = append([]byte("/h/"), c.RangeEnd...) })},
		"from now though it asked for before": {method: "Watch.Watch", want: "", request: onCreate(func(c *pb.WatchCreateRequest) { c.StartRevision = 0 })},
		"from before though it asked for now": {method: "Watch.Watch", want: "revision", response: func(c *call, m proto.Message) []proto.Message {
			r := m.(*pb.WatchResponse)
			if len(r.Events) > 0 && c.kept == nil {
				c.kept = r
			}
			if r.Created && !r.Canceled && c.kept != nil {
				old := clone(c.kept.(*pb.WatchResponse))
				old.WatchId = r.WatchId
				return []proto.Message{r, old}
			}
			return []proto.Message{r}
		}},
		"a header after the events": onEvents("with a header of", func(_ *call, r *pb.WatchResponse) []proto.Message {
			r.Header.Revision--
			return []proto.Message{r}
		}),
		"a header that goes back": onEvents("", func(c *call, r *pb.WatchResponse) []proto.Message {
			if c.n%2 == 0 {
				r.Header.Revision += 2
			}
			return []proto.Message{r}
		}),
		"a header of the future": onEvents("the newest is", func(_ *call, r *pb.WatchResponse) []proto.Message {
			r.Header.Revision += 1000
			return []proto.Message{r}
		}),
		"a member that changes": onWatch("on a stream of member", func(c *call, r *pb.WatchResponse) []proto.Message {
			r.Header.MemberId += uint64(c.n % 2)
			return []proto.Message{r}
		}),
		"another watch's event": onEvents("a watch that is not open", func(_ *call, r *pb.WatchResponse) []proto.Message {
			r.WatchId += 1000
			return []proto.Message{r}
		}),
		"a cancel reason with events": onEvents("fields of a cancel", func(_ *call, r *pb.WatchResponse) []proto.Message {
			r.CancelReason = "reason"
			return []proto.Message{r}
		}),
		"fragments for all": onEvents("a fragment", func(_ *call, r *pb.WatchResponse) []proto.Message {
			if len(r.Events) < 2 {
				return []proto.Message{r}
			}
			second := clone(r)
			r.Events, second.Events = r.Events[:1], second.Events[1:]
			r.Fragment = true
			return []proto.Message{r, second}
		}),
		"an endless fragment": onEvents("", func(_ *call, r *pb.WatchResponse) []proto.Message {
			r.Fragment = true
			return []proto.Message{r}
		}),
		"created at another revision": onWatch("answer", func(_ *call, r *pb.WatchResponse) []proto.Message {
			if r.Created {
				r.Header.Revision--
			}
			return []proto.Message{r}
		}),
		"created with another ID": onWatch("answer", func(_ *call, r *pb.WatchResponse) []proto.Message {
			if r.Created && r.WatchId >= 0 {
				r.WatchId += 5
			}
			return []proto.Message{r}
		}),
		"never created": onWatch("not within", func(_ *call, r *pb.WatchResponse) []proto.Message { return is(r.Created && r.WatchId == 1, r) }),
		"created twice": onWatch("answer", func(_ *call, r *pb.WatchResponse) []proto.Message {
			if r.Created {
				return []proto.Message{r, clone(r)}
			}
			return []proto.Message{r}
		}),
		"another cancel reason": onWatch("answer", func(_ *call, r *pb.WatchResponse) []proto.Message {
			if r.CancelReason != "" {
				r.CancelReason += "."
			}
			return []proto.Message{r}
		}),
		"a cancel without an answer": onWatch("not within", func(_ *call, r *pb.WatchResponse) []proto.Message {
			return is(r.Canceled && !r.Created && r.CompactRevision == 0, r)
		}),
		"a cancel of nothing is answered": {method: "Watch.Watch", want: "the watch does not exist", response: func(c *call, m proto.Message) []proto.Message {
			for _, q := range c.requests {
				if id := q.(*pb.WatchRequest).GetCancelRequest().GetWatchId(); id == 4711 && c.kept == nil {
					c.kept = m
					return []proto.Message{m, &pb.WatchResponse{Header: m.(*pb.WatchResponse).Header, WatchId: id, Canceled: true}}
				}
			}
			return []proto.Message{m}
		}},
		"compaction is not reported": onWatch("not cancelled as compacted", func(_ *call, r *pb.WatchResponse) []proto.Message {
			return is(r.CompactRevision != 0, r)
		}),
		"another compact revision": onWatch("is compacted", func(_ *call, r *pb.WatchResponse) []proto.Message {
			if r.CompactRevision != 0 {
				r.CompactRevision++
			}
			return []proto.Message{r}
		}),
		"compacted without a reason": onEvents("", func(_ *call, r *pb.WatchResponse) []proto.Message {
			return []proto.Message{r, &pb.WatchResponse{Header: r.Header, WatchId: r.WatchId, Canceled: true, CompactRevision: 1}}
		}),
		"progress of the future": onProgress("", func(r *pb.WatchResponse) []proto.Message {
			r.Header.Revision += 1000
			return []proto.Message{r}
		}),
		"no progress":    onProgress("progress", func(*pb.WatchResponse) []proto.Message { return nil }),
		"progress twice": onProgress("progress", func(r *pb.WatchResponse) []proto.Message { return []proto.Message{r, clone(r)} }),
		"progress of before": onProgress("progress", func(r *pb.WatchResponse) []proto.Message {
			r.Header.Revision -= 2
			return []proto.Message{r}
		}),
		"no notification": onNotification("not within", func(*pb.WatchResponse) []proto.Message { return nil }),
		"progress without a request": {
			method: "Watch.Watch", want: "without a request",
			request: onCreate(func(c *pb.WatchCreateRequest) { c.ProgressNotify = true }),
		},
		"no previous values": {method: "Watch.Watch", strict: true, want: "event", request: onCreate(func(c *pb.WatchCreateRequest) { c.PrevKv = false })},
		"fragments that are too large": {method: "Watch.Watch", strict: true, want: "fragments end at", request: onCreate(func(c *pb.WatchCreateRequest) {
			c.Fragment = false
		})},
		"progress before the events": {strict: true, method: "Watch.Watch", want: "but no events of revision", late: func(m proto.Message) bool {
			return len(m.(*pb.WatchResponse).Events) > 0
		}},
		"progress before it begins": {method: "Watch.Watch", want: "progress", response: func(c *call, m proto.Message) []proto.Message {
			r := m.(*pb.WatchResponse)
			if r.Created && !r.Canceled {
				return []proto.Message{r, &pb.WatchResponse{Header: r.Header, WatchId: -1}}
			}
			return []proto.Message{r}
		}},
		"progress without a watch": {method: "Watch.Watch", want: "answers to progress requests", response: func(c *call, m proto.Message) []proto.Message {
			r := m.(*pb.WatchResponse)
			if r.Canceled && r.WatchId == math.MaxInt64-7 {
				return []proto.Message{r, &pb.WatchResponse{Header: r.Header, WatchId: -1}}
			}
			return []proto.Message{r}
		}},
		"the stream ends": {method: "Watch.Watch", want: "stream", response: func(c *call, m proto.Message) []proto.Message {
			if c.n > 20 {
				return []proto.Message{nil}
			}
			return []proto.Message{m}
		}},
	}
}

func onProgress(want string, change func(r *pb.WatchResponse) []proto.Message) plant {
	return onWatch(want, func(_ *call, r *pb.WatchResponse) []proto.Message {
		if r.WatchId == -1 && !r.Created && len(r.Events) == 0 {
			return change(r)
		}
		return []proto.Message{r}
	})
}

func onNotification(want string, change func(r *pb.WatchResponse) []proto.Message) plant {
	return onWatch(want, func(_ *call, r *pb.WatchResponse) []proto.Message {
		if r.WatchId != -1 && !r.Created && !r.Canceled && len(r.Events) == 0 {
			return change(r)
		}
		return []proto.Message{r}
	})
}

func onCreate(change func(c *pb.WatchCreateRequest)) func(proto.Message) {
	return func(m proto.Message) {
		if c := m.(*pb.WatchRequest).GetCreateRequest(); c != nil && string(c.Key) != "compacted?" {
			change(c)
		}
	}
}

func swap[T any](list []T) {
	if n := len(list); n > 1 {
		list[0], list[n-1] = list[n-1], list[0]
	}
}

func each[T any](list []T, change func(T)) {
	for _, one := range list {
		change(one)
	}
}

// The comparison finds every planted mistake.
func TestMistakesAreFound(t *testing.T) {
	const pairs = 4 // most of the time is spent waiting
	free := make(chan differential.Sides, pairs)
	for range pairs {
		free <- plainSides(t)
	}
	for i, name := range slices.Sorted(maps.Keys(plants())) {
		p := plants()[name]
		t.Run(name, func(t *testing.T) {
			if testing.Short() && i%6 > 0 {
				t.Skip("one of six")
			}
			t.Parallel()
			sides := <-free
			defer func() { free <- sides }()
			planted := sides
			planted.Through = []*grpc.ClientConn{dial(t, p.serve(t, sides.Direct))}
			planted.Loose, planted.JSON = !p.strict, nil // the proxy knows none
			cfg := differential.Config{Seed: 1, Steps: 4000, Patience: time.Second}
			if p.strict {
				cfg.Most = 20
			}
			p.found(t, planted, cfg)
		})
	}
}

// found fails unless a run finds the mistake, within several runs and with the expected text.
func (p plant) found(t *testing.T, planted differential.Sides, cfg differential.Config) {
	t.Helper()
	var said []string
	for range 5 {
		report, err := differential.Run(t.Context(), planted, cfg)
		differences := strings.Join(report.Differences, "\n")
		if differences != "" && strings.Contains(differences, p.want) {
			return
		}
		said = append(said, fmt.Sprintf("%v\n%.1000s\nasked %v", err, differences, report.Asked))
		cfg.Seed++
		cfg.Patience *= 2 // the machine may be busy
	}
	t.Errorf("not found, but\n%s", strings.Join(said, "\n"))
}

// The comparison finds a tier that uses another caller's token for etcd, or continues watches that
// are no longer permitted.
func TestMistakesAboutRightsAreFound(t *testing.T) {
	sides := plainSides(t)
	var err error
	if sides.Root, err = differential.EnableAuth(t.Context(), sides.Plain, sides.Direct); err != nil {
		t.Fatal(err)
	}
	root, err := pb.NewAuthClient(sides.Direct).Authenticate(t.Context(), &pb.AuthenticateRequest{Name: "root", Password: sides.Root})
	if err != nil {
		t.Fatal(err)
	}
	sides.JSON = nil // the proxy knows none
	for name, p := range map[string]plant{
		"reads are root's":       {method: "KV.Range", token: root.Token, want: "ends with"},
		"writes are root's":      {method: "KV.Put", token: root.Token, want: "want PermissionDenied"},
		"watches are root's":     {method: "Watch.Watch", token: root.Token, want: "permission denied"},
		"watches are not ended":  {want: "continues"},
		"nothing, and all agree": {},
	} {
		t.Run(name, func(t *testing.T) {
			planted := sides
			planted.Through = []*grpc.ClientConn{dial(t, p.serve(t, sides.Direct))}
			planted.RightsOnce = p.want != "continues"
			cfg := differential.Config{Seed: 1, Steps: 1000, Most: 3, Patience: 5 * time.Second}
			if p.want != "" {
				p.found(t, planted, cfg)
				return
			}
			cfg.Steps, cfg.Patience = 200, 0
			report, err := differential.Run(t.Context(), planted, cfg)
			show(t, report, err)
		})
	}
}

// The comparison finds mistakes in JSON, too.
func TestMistakesInJSONAreFound(t *testing.T) {
	sides := plainSides(t)
	for name, change := range map[string]func(*http.Response, []byte) []byte{
		"status": func(r *http.Response, body []byte) []byte { r.StatusCode++; return body },
		"type":   func(r *http.Response, body []byte) []byte { r.Header.Set("Content-Type", "text/plain"); return body },
		"numbers as such": func(_ *http.Response, body []byte) []byte {
			return regexp.MustCompile(`"version":"(\d+)"`).ReplaceAll(body, []byte(`"version":$1`))
		},
		"another revision": func(_ *http.Response, body []byte) []byte {
			return bytes.Replace(body, []byte(`"revision":"`), []byte(`"revision":"1`), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := httptest.NewServer(&httputil.ReverseProxy{
				Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: sides.JSON[0]}) },
				ModifyResponse: func(r *http.Response) error {
					body, err := io.ReadAll(r.Body)
					body = change(r, body)
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
					r.Header.Set("Content-Length", strconv.Itoa(len(body)))
					return err
				},
				Transport: &http.Transport{DisableKeepAlives: true},
			})
			defer proxy.Close()
			planted := sides
			planted.JSON = slices.Repeat([]string{proxy.Listener.Addr().String()}, 2)
			plant{want: ""}.found(t, planted, differential.Config{Seed: 1, Steps: 1000})
		})
	}
}
