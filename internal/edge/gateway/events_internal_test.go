package gateway

import (
	"encoding/base64"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// An event has an id only if a client that has applied all events up to it may resume there; the id is that
// position.
func TestEventIDs(t *testing.T) {
	rng := kv.Range{Start: "a", End: "b"}
	here := wire.Position{Cluster: wire.ClusterKey("c"), Lineage: 2, Range: rng}
	created := func(revision int64) *shardwatchv1.WatchResponse {
		p := here
		p.Revision = kv.Revision(revision)
		return &shardwatchv1.WatchResponse{Detail: &shardwatchv1.WatchResponse_Created{Created: &shardwatchv1.Created{
			Revision: revision, ClusterId: "c", Lineage: 2, ResumeToken: wire.ResumeToken(p),
		}}}
	}
	events := func(revision int64, fragment bool) *shardwatchv1.WatchResponse {
		return &shardwatchv1.WatchResponse{Revision: revision, Fragment: fragment, Events: []*shardwatchv1.Event{{Kv: &shardwatchv1.KeyValue{Key: []byte("a")}}}}
	}
	sync := func(revision int64, begin, end bool) *shardwatchv1.WatchResponse {
		return &shardwatchv1.WatchResponse{Detail: &shardwatchv1.WatchResponse_Sync{Sync: &shardwatchv1.Sync{
			Kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC, Begin: begin, End: end, Revision: revision,
		}}}
	}
	progress := func(revision int64) *shardwatchv1.WatchResponse {
		return &shardwatchv1.WatchResponse{Detail: &shardwatchv1.WatchResponse_Progress{Progress: &shardwatchv1.Progress{Revision: revision}}}
	}
	type responses []*shardwatchv1.WatchResponse
	withState := created(5)
	withState.GetCreated().ResumeToken = nil
	for name, c := range map[string]struct {
		sent responses
		want []int64 // ID of each event; 0: none
	}{
		"events":             {responses{created(5), events(6, false), events(8, false)}, []int64{5, 6, 8}},
		"fragments":          {responses{created(5), events(6, true), progress(9), events(6, false)}, []int64{5, 0, 0, 6}},
		"a unit":             {responses{created(5), sync(9, true, false), progress(10), sync(9, false, true), progress(10)}, []int64{5, 0, 0, 9, 10}},
		"the state":          {responses{withState, progress(6), sync(5, true, false), sync(5, false, true), events(6, false)}, []int64{0, 0, 0, 5, 6}},
		"another history":    {responses{created(0), progress(7), sync(9, true, true)}, []int64{-1, 0, 9}},
		"progress stays put": {responses{created(5), progress(5), progress(4)}, []int64{5, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			e := &eventWriter{w: w, rng: rng}
			for i, m := range c.sent {
				w.Body.Reset()
				write := e.send
				if i == 0 {
					write = e.begin
				}
				if err := write(m); err != nil {
					t.Fatal(err)
				}
				_, id, found := strings.Cut(w.Body.String(), "\nid: ")
				if found != (c.want[i] != 0) {
					t.Errorf("event %d: has an id: %v, want the opposite\n%s", i, found, w.Body)
				}
				if !found || c.want[i] < 0 {
					continue
				}
				id, _, _ = strings.Cut(id, "\n")
				token, err := base64.RawURLEncoding.DecodeString(id)
				if err != nil {
					t.Fatal(err)
				}
				at, err := wire.ParseResumeToken(token, rng)
				if err != nil || int64(at.Revision) != c.want[i] || at.Cluster != here.Cluster || at.Lineage != 2 {
					t.Errorf("the id of event %d means %+v (%v), want revision %d", i, at, err, c.want[i])
				}
			}
		})
	}
}

// The end event is the last event, and contains the retry delay.
func TestEndOfEvents(t *testing.T) {
	w := httptest.NewRecorder()
	e := &eventWriter{w: w, begun: true}
	err := e.send(&shardwatchv1.WatchResponse{Detail: &shardwatchv1.WatchResponse_Ended{Ended: &shardwatchv1.Ended{
		Reason: shardwatchv1.EndReason_END_REASON_DRAINING, Message: "goes", Endpoints: []string{"there:1"},
	}}})
	if !errors.Is(err, io.EOF) || w.Body.String() != "event: end\ndata: {\"revision\":0,\"reason\":\"DRAINING\",\"message\":\"goes\",\"endpoints\":[\"there:1\"]}\n\n" {
		t.Errorf("%v: %q", err, w.Body)
	}
}
