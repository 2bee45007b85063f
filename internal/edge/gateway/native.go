package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// The native API for programs without gRPC: GET /v1/watch sends events (events.go), and GET /v1/keys lists
// keys. Both are calls of the native service in this process, admitted like those of etcd's JSON API.

// native returns the handler of a path of the native API, and the method that it calls; nil: the path is not
// part of it.
func (g *Gateway) native(path string) (*method, func(http.ResponseWriter, *http.Request, *exchange)) {
	switch path {
	case "/v1/watch":
		return g.methods[shardwatchv1.CacheService_Watch_FullMethodName], g.watchKeys
	case "/v1/keys":
		return g.methods[shardwatchv1.CacheService_List_FullMethodName], g.listKeys
	}
	return nil, nil
}

// serveNative answers a request for a path of the native API.
func (g *Gateway) serveNative(w http.ResponseWriter, r *http.Request, m *method, answer func(http.ResponseWriter, *http.Request, *exchange)) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	x, end, err := g.begin(ctx, r, m)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	defer end()
	defer cancel()
	if ctx, err = runtime.AnnotateContext(ctx, g.mux, r, m.name); err != nil {
		g.fail(w, r, err)
		return
	}
	x.pace = paceOf(ctx)
	answer(w, r.WithContext(x.in(ctx)), x)
}

// query is the parameters of a request. Its methods record the first error.
type query struct {
	values url.Values
	err    error
}

func (q *query) wrong(name, why string) {
	if q.err == nil {
		q.err = &kv.InvalidError{Field: name, Reason: why}
	}
}

// flag returns whether a parameter is set: true, 1, or without a value.
func (q *query) flag(name string) bool {
	switch v := q.values.Get(name); {
	case !q.values.Has(name):
		return false
	case v == "":
		return true
	default:
		set, err := strconv.ParseBool(v)
		if err != nil {
			q.wrong(name, fmt.Sprintf("%q is neither true nor false", v))
		}
		return set
	}
}

func (q *query) number(name string) int64 {
	v := q.values.Get(name)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n <= 0 {
		q.wrong(name, fmt.Sprintf("%q is not a number above 0", v))
	}
	return n
}

func (q *query) duration(name string) *durationpb.Duration {
	v := q.values.Get(name)
	if v == "" {
		return nil
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		q.wrong(name, fmt.Sprintf("%q is not a duration, such as 500ms", v))
	}
	return durationpb.New(d)
}

// keys returns the range given by prefix, or by key and the optional range_end.
func (q *query) keys() (key, end []byte) {
	prefix, one := q.values.Get("prefix"), q.values.Get("key")
	switch {
	case q.values.Has("prefix") == q.values.Has("key"):
		q.wrong("prefix", "name a prefix or a key")
	case q.values.Has("prefix") && q.values.Has("range_end"):
		q.wrong("range_end", "use it with key, not with prefix")
	case q.values.Has("prefix"):
		r := kv.Prefix(prefix)
		return r.Etcd()
	case q.values.Has("range_end"):
		return []byte(one), []byte(q.values.Get("range_end"))
	}
	return []byte(one), nil
}

// listKeys writes the keys of a range as they arrive. If the list fails midway, it aborts the connection.
func (g *Gateway) listKeys(w http.ResponseWriter, r *http.Request, x *exchange) {
	q := &query{values: r.URL.Query()}
	request := q.list()
	rng, err := kv.RangeFromEtcd(request.GetKey(), request.GetRangeEnd())
	if err != nil {
		q.wrong("key", err.Error())
	}
	if q.err != nil {
		g.fail(w, r, q.err)
		return
	}
	rpc, err := shardwatchv1.NewCacheServiceClient(g).List(r.Context(), request)
	var m *shardwatchv1.ListResponse
	if err == nil {
		m, err = rpc.Recv()
	}
	if err != nil {
		g.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprintf(w, `{"cluster":%q,"lineage":%d,"revision":%d,"token":%q,"keys":[`, m.GetClusterId(), m.GetLineage(), m.GetRevision(),
		base64.RawURLEncoding.EncodeToString(tokenOf(m.GetClusterId(), m.GetLineage(), rng, m.GetRevision())))
	between := ""
	for err == nil {
		for _, one := range m.GetKvs() {
			b, wrong := json.Marshal(keyValueOf(one, !request.GetKeysOnly()))
			if _, err = fmt.Fprintf(w, "%s%s", between, b); err != nil || wrong != nil {
				panic(http.ErrAbortHandler) // the client has left
			}
			between = ",\n"
		}
		x.wrote()
		next := m.GetNextPageToken()
		if m, err = rpc.Recv(); errors.Is(err, io.EOF) {
			fmt.Fprintf(w, `],"next_page":%q}`+"\n", base64.RawURLEncoding.EncodeToString(next))
			return
		}
	}
	panic(http.ErrAbortHandler) // the list was not written completely
}

// list returns the list request.
func (q *query) list() *shardwatchv1.ListRequest {
	out := &shardwatchv1.ListRequest{Limit: q.number("limit"), Revision: q.number("revision"), KeysOnly: q.flag("keys_only")}
	out.Key, out.RangeEnd = q.keys()
	if q.flag("serializable") {
		out.Consistency, out.MaxStaleness = shardwatchv1.Consistency_CONSISTENCY_SERIALIZABLE, q.duration("max_staleness")
	}
	page, err := base64.RawURLEncoding.DecodeString(q.values.Get("page"))
	if out.PageToken = page; err != nil {
		q.wrong("page", "not the next_page of a list")
	}
	return out
}
