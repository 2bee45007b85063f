package differential

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// page is a response over HTTP.
type page struct {
	Status int
	Type   string
	Body   any
}

// jsonStep sends a call over etcd's JSON API.
func (r *run) jsonStep() {
	if r.JSON == nil {
		return
	}
	var req proto.Message
	path, write := "", true
	choose(
		r.dice,
		choice{4, func() { path, req, write = "kv/range", r.rangeRequest(), false }},
		choice{2, func() { path, req = "kv/put", r.put() }},
		choice{1, func() { path, req = "kv/deleterange", r.deleteRange() }},
		choice{2, func() { path, req = "kv/txn", r.txn(1) }},
		choice{1, func() { path, req, write = pick(r, "kv/nothing", "nothing", "kv/range/"), &pb.RangeRequest{}, false }},
	)
	if rr, ok := req.(*pb.RangeRequest); ok {
		rr.Serializable = false
	}
	body, err := protojson.MarshalOptions{UseProtoNames: oneIn(r, 2), UseEnumNumbers: oneIn(r, 3)}.Marshal(req)
	if err != nil {
		return // it has no JSON form
	}
	if oneIn(r, 12) { // invalid JSON, or JSON of another message
		body, write = []byte(pick(r, "", "{", `{"key":1}`, `{"key":"!"}`, `{"kez":"a2V5"}`, `[]`, `{"limit":"many"}`)), false
	}
	r.report.Asked["json."+path]++
	who, node := r.someone(), r.IntN(len(r.Through))
	from, hide := addressOf(r.Direct), sameEtcd()
	if write {
		from, hide = addressOf(r.Plain), twoEtcds()
		if r.nameless(who) {
			who = 0 // see namelessFirst
		}
	}
	want, err := r.post(who, from, path, body)
	if err != nil {
		r.fatal = err
		return
	}
	got, err := r.post(who, r.JSON[node], path, body)
	if err != nil {
		r.differ("JSON %s at node %d: %v", path, node, err)
		return
	}
	revision := revisionOf(want.Body)
	if write && revision != revisionOf(got.Body) {
		r.fatal = fmt.Errorf("the two etcds have diverged: JSON %s %s", path, body)
	}
	for _, p := range []page{want, got} {
		hideInJSON(p.Body, hide)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.differ("JSON %s %s\nat node %d: -want +got\n%s", path, cut(string(body), 600), node, shorten(diff))
	}
	r.revision = max(r.revision, revision)
}

// addressOf returns the dialed address of a connection.
func addressOf(cc *grpc.ClientConn) string { return strings.TrimPrefix(cc.Target(), "passthrough:///") }

// post sends a request over the JSON API of an etcd or a node.
func (r *run) post(who int, address, path string, body []byte) (page, error) {
	req, err := http.NewRequestWithContext(r.ctx, http.MethodPost, "http://"+address+"/v3/"+path, bytes.NewReader(body))
	if err != nil {
		return page{}, fmt.Errorf("ask over JSON: %w", err)
	}
	if who < len(r.people) {
		token := r.people[who].behind
		if address == addressOf(r.Plain) {
			token = r.people[who].plain
		}
		req.Header.Set("Authorization", token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}, Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		return page{}, fmt.Errorf("ask over JSON: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return page{}, fmt.Errorf("ask over JSON: %w", err)
	}
	p := page{Status: resp.StatusCode, Type: resp.Header.Get("Content-Type")}
	if json.Unmarshal(text, &p.Body) != nil {
		p.Body = string(text)
	}
	return p, nil
}

// revisionOf returns the revision in the header of an answer, or 0.
func revisionOf(body any) int64 {
	all, _ := body.(map[string]any)
	header, _ := all["header"].(map[string]any)
	text, _ := header["revision"].(string)
	n, _ := strconv.ParseInt(text, 10, 64) // 0 when there is none
	return n
}

// hideInJSON removes the fields of headers that may differ.
func hideInJSON(v any, hide mask) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			hideInJSON(one, hide)
		}
	case map[string]any:
		for name, one := range v {
			if header, ok := one.(map[string]any); ok && name == "header" {
				for _, field := range hide {
					delete(header, string(field))
				}
			}
			if text, ok := one.(string); ok { // protobuf's errors contain one of two kinds of space
				v[name] = strings.ReplaceAll(text, "\u00a0", " ")
			}
			hideInJSON(one, hide)
		}
	}
}
