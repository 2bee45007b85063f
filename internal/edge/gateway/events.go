package gateway

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A watch as server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html.
// The id of an event is the resume token of a client that has applied everything up to this event. Fragments of
// a revision but the last have none, and neither have the parts of a unit but the last.

// keyJSON is a key with its value and revisions. Bytes that are not UTF-8 are base64 in a field of their own.
type keyJSON struct {
	Type           string   `json:"type,omitempty"`
	Key            string   `json:"key,omitempty"`
	KeyBase64      []byte   `json:"key_base64,omitempty"`
	Value          *string  `json:"value,omitempty"`
	ValueBase64    []byte   `json:"value_base64,omitempty"`
	CreateRevision int64    `json:"create_revision,omitempty"`
	ModRevision    int64    `json:"mod_revision,omitempty"`
	Version        int64    `json:"version,omitempty"`
	Lease          int64    `json:"lease,omitempty"`
	Prev           *keyJSON `json:"prev,omitempty"`
}

// eventJSON is the data of an event.
type eventJSON struct {
	Cluster   string     `json:"cluster,omitempty"`
	Lineage   uint64     `json:"lineage,omitempty"`
	Node      string     `json:"node,omitempty"`
	Revision  int64      `json:"revision"`
	From      int64      `json:"from_revision,omitempty"`
	Fragment  bool       `json:"fragment,omitempty"`
	Begin     bool       `json:"begin,omitempty"`
	End       bool       `json:"end,omitempty"`
	Age       float64    `json:"age_seconds,omitempty"`
	Events    []*keyJSON `json:"events,omitempty"`
	Keys      []*keyJSON `json:"keys,omitempty"`
	Deleted   []*keyJSON `json:"deleted,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	Message   string     `json:"message,omitempty"`
	Endpoints []string   `json:"endpoints,omitempty"`
}

func keyOf(key []byte) *keyJSON {
	if utf8.Valid(key) {
		return &keyJSON{Key: string(key)}
	}
	return &keyJSON{KeyBase64: key}
}

func keyValueOf(m *shardwatchv1.KeyValue, value bool) *keyJSON {
	out := keyOf(m.GetKey())
	out.CreateRevision, out.ModRevision, out.Version, out.Lease = m.GetCreateRevision(), m.GetModRevision(), m.GetVersion(), m.GetLease()
	switch {
	case !value:
	case utf8.Valid(m.GetValue()):
		text := string(m.GetValue())
		out.Value = &text
	default:
		out.ValueBase64 = m.GetValue()
	}
	return out
}

func eventOf(m *shardwatchv1.Event) *keyJSON {
	out := keyValueOf(m.GetKv(), m.GetType() == shardwatchv1.EventType_PUT)
	out.Type = m.GetType().String()
	if m.GetPrevKv() != nil {
		out.Prev = keyValueOf(m.GetPrevKv(), true)
	}
	return out
}

// watchKeys sends the watched events until the client leaves, or the watch ends.
func (g *Gateway) watchKeys(w http.ResponseWriter, r *http.Request, x *exchange) {
	q := &query{values: r.URL.Query()}
	create, options := q.watch(r.Header.Get("Last-Event-ID"))
	rng, err := kv.RangeFromEtcd(create.GetKey(), create.GetRangeEnd())
	if err != nil {
		q.wrong("key", err.Error())
	}
	if q.err != nil {
		g.fail(w, r, q.err)
		return
	}
	rpc, err := shardwatchv1.NewCacheServiceClient(g).Watch(r.Context())
	if err == nil {
		err = errors.Join(rpc.Send(&shardwatchv1.WatchRequest{Request: &shardwatchv1.WatchRequest_Options{Options: options}}),
			rpc.Send(&shardwatchv1.WatchRequest{Request: &shardwatchv1.WatchRequest_Create{Create: create}}))
	}
	if err != nil && !errors.Is(err, io.EOF) { // after io.EOF, Recv returns the reason
		g.fail(w, r, err)
		return
	}
	e := &eventWriter{w: w, rng: rng}
	for {
		m, err := rpc.Recv()
		switch {
		case err == nil && e.begun:
			err = e.send(m)
		case err == nil:
			err = e.begin(m)
		}
		x.wrote()
		if err != nil {
			if !e.begun {
				g.fail(w, r, err)
			}
			return
		}
	}
}

// watch returns the messages that start a watch. It resumes from last, the Last-Event-ID of the client, or else
// from the parameter token.
func (q *query) watch(last string) (*shardwatchv1.CreateWatch, *shardwatchv1.StreamOptions) {
	create := &shardwatchv1.CreateWatch{WatchId: 1, AllowSync: true, PrevKv: q.flag("prev_kv"), Conflate: q.duration("conflate")}
	create.Key, create.RangeEnd = q.keys()
	if last == "" {
		last = q.values.Get("token")
	}
	switch revision := q.number("revision"); {
	case last != "":
		token, err := base64.RawURLEncoding.DecodeString(last)
		if err != nil {
			q.wrong("token", "not the id of an event")
		}
		create.Start = &shardwatchv1.CreateWatch_ResumeToken{ResumeToken: token}
	case q.flag("state"):
		create.Start = &shardwatchv1.CreateWatch_StateFirst{StateFirst: true}
	case revision > 0:
		create.Start = &shardwatchv1.CreateWatch_StartRevision{StartRevision: revision}
	}
	return create, &shardwatchv1.StreamOptions{ProgressInterval: q.duration("progress")}
}

// eventWriter writes the events of one watch, and tracks the client's position.
type eventWriter struct {
	w       http.ResponseWriter
	rng     kv.Range
	begun   bool   // the header has been sent
	cluster string // of the history of all revisions
	lineage uint64
	at      int64 // the client's position
	whole   bool  // the client has no position until a unit has ended
	partial bool  // a revision or a unit is incomplete
}

// begin handles a response before the watch has started. If the watch ends, it returns the reason as an error.
func (e *eventWriter) begin(m *shardwatchv1.WatchResponse) error {
	if m.GetEnded() != nil {
		return refusal(m.GetEnded())
	}
	c := m.GetCreated()
	if c == nil {
		return nil // progress of a stream without a watch
	}
	e.begun, e.cluster, e.lineage, e.at = true, c.GetClusterId(), c.GetLineage(), c.GetRevision()
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	// Without a token the state follows; without a revision the token is of another history, and a resync follows.
	e.whole = len(c.GetResumeToken()) == 0 || c.GetRevision() == 0
	return e.write("created", c.GetResumeToken(), &eventJSON{
		Cluster: e.cluster, Lineage: e.lineage, Node: c.GetNode(), Revision: c.GetRevision(), Age: c.GetAge().AsDuration().Seconds(),
	})
}

// send writes a response as an event.
func (e *eventWriter) send(m *shardwatchv1.WatchResponse) error {
	switch {
	case m.GetSync() != nil:
		return e.sync(m.GetSync())
	case m.GetProgress() != nil:
		p := m.GetProgress()
		var id []byte
		if !e.partial && !e.whole && p.GetRevision() > e.at {
			e.at = p.GetRevision()
			id = e.token()
		}
		return e.write("progress", id, &eventJSON{Revision: e.at, Age: p.GetAge().AsDuration().Seconds()})
	case m.GetEnded() != nil:
		end := m.GetEnded()
		if d := end.GetRetryAfter(); d != nil {
			if _, err := fmt.Fprintf(e.w, "retry: %d\n", d.AsDuration().Milliseconds()); err != nil {
				return err
			}
		}
		reason := strings.TrimPrefix(end.GetReason().String(), "END_REASON_")
		return errors.Join(e.write("end", nil, &eventJSON{Revision: e.at, Reason: reason, Message: end.GetMessage(), Endpoints: end.GetEndpoints()}), io.EOF)
	case len(m.GetEvents()) == 0:
		return nil
	}
	out := &eventJSON{Revision: m.GetRevision(), Fragment: m.GetFragment()}
	for _, one := range m.GetEvents() {
		out.Events = append(out.Events, eventOf(one))
	}
	return e.write("events", e.moved(m.GetRevision(), !m.GetFragment()), out)
}

func (e *eventWriter) sync(s *shardwatchv1.Sync) error {
	out := &eventJSON{Revision: s.GetRevision(), From: s.GetFromRevision(), Begin: s.GetBegin(), End: s.GetEnd()}
	for _, m := range s.GetKvs() {
		out.Keys = append(out.Keys, keyValueOf(m, true))
	}
	for _, key := range s.GetDeleted() {
		out.Deleted = append(out.Deleted, keyOf(key))
	}
	if s.GetEnd() {
		e.whole = false
	}
	kind := strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SYNC_KIND_"))
	return e.write(kind, e.moved(s.GetRevision(), s.GetEnd()), out)
}

// moved returns the id of an event that completes a revision; nil if the revision is not complete.
func (e *eventWriter) moved(revision int64, complete bool) []byte {
	if e.partial = !complete; !complete {
		return nil
	}
	e.at = revision
	return e.token()
}

func (e *eventWriter) token() []byte { return tokenOf(e.cluster, e.lineage, e.rng, e.at) }

func tokenOf(cluster string, lineage uint64, rng kv.Range, at int64) []byte {
	return wire.ResumeToken(wire.Position{Cluster: wire.ClusterKey(cluster), Lineage: lineage, Range: rng, Revision: kv.Revision(at)})
}

// write writes an event. It blocks while the client does not read.
func (e *eventWriter) write(name string, id []byte, data *eventJSON) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	line := ""
	if len(id) > 0 {
		line = "id: " + base64.RawURLEncoding.EncodeToString(id) + "\n"
	}
	if _, err = fmt.Fprintf(e.w, "event: %s\n%sdata: %s\n\n", name, line, b); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}

// refusal returns the error of a watch that was not started.
func refusal(e *shardwatchv1.Ended) error {
	switch e.GetReason() {
	case shardwatchv1.EndReason_END_REASON_INVALID:
		return &kv.InvalidError{Field: "watch", Reason: e.GetMessage()}
	case shardwatchv1.EndReason_END_REASON_DENIED:
		return &kv.DeniedError{Detail: e.GetMessage()}
	case shardwatchv1.EndReason_END_REASON_UNAUTHENTICATED:
		return &kv.UnauthenticatedError{Detail: e.GetMessage()}
	case shardwatchv1.EndReason_END_REASON_LIMIT:
		return &kv.LimitError{Limit: "watch", Detail: e.GetMessage(), RetryAfter: e.GetRetryAfter().AsDuration()}
	}
	return &kv.UnavailableError{Why: kv.NotReady, Detail: e.GetMessage(), RetryAfter: e.GetRetryAfter().AsDuration()}
}
