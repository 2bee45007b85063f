package server_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A client that requests tokens gets the position of each of its watches, in several messages if
// there are many, and resumes from it. A client that does not request tokens gets none.
func TestProgressBringsTokens(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{})
	s := r.watch()
	const watches = 1001
	for id := int64(1); id <= watches; id++ {
		s.create(&pb.CreateWatch{WatchId: id, Key: []byte("a"), RangeEnd: []byte("b"), Start: &pb.CreateWatch_StartRevision{StartRevision: first}})
		s.created(id)
	}
	h.Commit(cachetest.Put("x", "1")) // outside of the ranges
	at := int64(h.Commit(cachetest.Put("y", "1")))
	s.requestProgress()
	if p := s.next().GetProgress(); p.GetRevision() != at || len(p.GetWatchIds())+len(p.GetResumeTokens()) > 0 {
		t.Fatalf("without tokens: %v, want progress %d of the whole stream", p, at)
	}
	s.send(&pb.WatchRequest{Request: &pb.WatchRequest_Options{Options: &pb.StreamOptions{ProgressTokens: proto.Bool(true)}}})
	s.requestProgress()
	if p := s.next().GetProgress(); p.GetRevision() != at || len(p.GetWatchIds()) > 0 {
		t.Fatalf("%v, want progress %d of the whole stream first", p, at)
	}
	tokens := make(map[int64][]byte)
	for messages := 1; len(tokens) < watches; messages++ {
		p := s.next().GetProgress()
		if p.GetRevision() != at || len(p.GetWatchIds()) != len(p.GetResumeTokens()) || len(p.GetWatchIds()) > 1000 || messages > 2 {
			t.Fatalf("message %d: %d watches and %d tokens at revision %d", messages, len(p.GetWatchIds()), len(p.GetResumeTokens()), p.GetRevision())
		}
		for i, id := range p.GetWatchIds() {
			tokens[id] = p.GetResumeTokens()[i]
		}
	}
	position, err := wire.ParseResumeToken(tokens[watches], kv.Range{Start: "a", End: "b"})
	if err != nil || int64(position.Revision) != at || position.Lineage != 1 || position.Cluster != wire.ClusterKey("test") {
		t.Errorf("the token means %+v, %v, want revision %d", position, err, at)
	}
	s.create(&pb.CreateWatch{WatchId: watches + 1, Key: []byte("a"), RangeEnd: []byte("b"), Start: &pb.CreateWatch_ResumeToken{ResumeToken: tokens[1]}})
	if c := s.created(watches + 1); c.GetRevision() != at {
		t.Errorf("the watch resumed after revision %d, want %d", c.GetRevision(), at)
	}
}

// A watch has no position, and no token, before it has received its initial state.
func TestNoTokenBeforeTheState(t *testing.T) {
	h := cachetest.New()
	for i := range 64 {
		h.Commit(cachetest.Put(fmt.Sprintf("a%02d", i), strings.Repeat("x", 1<<10)))
	}
	r := start(t, h, options{server: func(c *server.Config) {
		brief(c)
		c.ResyncRate = 64 << 10 // so that sending the state takes several intervals
	}})
	s := r.watch()
	s.send(&pb.WatchRequest{Request: &pb.WatchRequest_Options{Options: &pb.StreamOptions{ProgressTokens: proto.Bool(true)}}})
	s.create(&pb.CreateWatch{WatchId: 1, Key: []byte("a"), RangeEnd: []byte("b"), Start: &pb.CreateWatch_StateFirst{StateFirst: true}})
	s.created(1)
	during := 0 // number of progress messages while the state is sent
	for state := false; ; {
		m := s.next()
		state = state || m.GetSync().GetEnd()
		switch p := m.GetProgress(); {
		case len(p.GetResumeTokens()) > 0 && !state:
			t.Fatalf("a token before the state: %v", m)
		case len(p.GetResumeTokens()) > 0 && during == 0:
			t.Fatal("no progress while the state was sent")
		case len(p.GetResumeTokens()) > 0:
			return
		case p != nil && !state:
			during++
		}
	}
}
