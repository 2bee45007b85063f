package grpcserver_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
)

// parkedAnswer is an answer that continues without its handler.
type parkedAnswer interface {
	http.ResponseWriter
	FlushError() error
	SendFramed(wait func(), parts ...[]byte) error
	Cut()
	Park()
	End()
}

// startParking starts a server for answers that a test writes after their handlers have returned.
func startParking(t *testing.T) (*http.Client, string, *grpcserver.Server, <-chan parkedAnswer) {
	t.Helper()
	answers := make(chan parkedAnswer, 10)
	cfg := config()
	cfg.HTTP = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := w.(parkedAnswer)
		w.WriteHeader(http.StatusEarlyHints) // informational: not the answer
		w.WriteHeader(http.StatusAccepted)
		p.Park()
		answers <- p
	})
	address, s := serve(t, cfg)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	t.Cleanup(client.CloseIdleConnections)
	return client, "http://" + address, s, answers
}

func begin(t *testing.T, client *http.Client, url string, answers <-chan parkedAnswer) (parkedAnswer, *http.Response, *bufio.Scanner) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan *http.Response, 1)
	go func() {
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
		}
		sent <- resp
	}()
	p := <-answers
	if err := p.FlushError(); err != nil {
		t.Fatal(err)
	}
	resp := <-sent
	if resp == nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("the answer is %+v", resp)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return p, resp, bufio.NewScanner(resp.Body)
}

// A parked answer continues after its handler has returned, until End, and is then complete.
func TestParkedAnswer(t *testing.T) {
	client, url, s, answers := startParking(t)
	p, _, lines := begin(t, client, url, answers)
	for _, line := range []string{"one", "two"} {
		if _, err := io.WriteString(p, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if err := p.FlushError(); err != nil || !lines.Scan() || lines.Text() != line {
			t.Fatalf("the client reads %q, want %q: %v", lines.Text(), line, err)
		}
	}
	p.End()
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("after the end: %q, %v", lines.Text(), lines.Err())
	}
	stop(t, s)
}

// Answers whose clients read nothing are cut where they are, but end like complete answers. None of them
// blocks the server.
func TestCutAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		window uint32 // of the client, in bytes
		bytes  int    // size of the answer: more than the client accepts, or 0
	}{
		"at rest":              {window: 1 << 16},
		"the window is closed": {window: 1 << 16, bytes: 1 << 20},
		"the socket is full":   {window: 1 << 30, bytes: 64 << 20},
	} {
		for _, reads := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reads %t", name, reads), func(t *testing.T) { testCut(t, c.window, c.bytes, reads) })
		}
	}
}

func testCut(t *testing.T, window uint32, bytes int, reads bool) {
	_, url, s, answers := startParking(t)
	client := greet(t, strings.TrimPrefix(url, "http://"), http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	client.must(client.WriteWindowUpdate(0, window))
	client.open(1, true, ":method", http.MethodGet, ":scheme", "http", ":path", "/", ":authority", "x")
	p := <-answers
	if err := p.FlushError(); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	if bytes > 0 {
		waits := make(chan struct{})
		announce := sync.OnceFunc(func() { close(waits) })
		go func() { wrote <- p.SendFramed(announce, make([]byte, bytes)) }()
		<-waits
	} else {
		wrote <- io.EOF
	}
	p.Cut()
	select {
	case err := <-wrote:
		if err == nil {
			t.Error("a write that waited for the client succeeded after the cut")
		}
	case <-time.After(time.Minute):
		t.Fatal("a write still waits for the client")
	}
	p.Cut() // the answer has ended already
	p.End()
	if reads {
		if _, content, reset := client.answer(1); reset != 0 || bytes > 0 && (len(content) == 0 || len(content) >= bytes) {
			t.Errorf("the client reads %d bytes of %d, and a reset with %v", len(content), bytes, reset)
		}
		client.alive()
	}
	stop(t, s)
}

// stop fails unless the server stops within a minute.
func stop(t *testing.T, s *grpcserver.Server) {
	t.Helper()
	stopped := make(chan struct{})
	go func() { s.Stop(); close(stopped) }()
	select {
	case <-stopped: // Stop waits for the handlers
	case <-time.After(time.Minute):
		t.Fatal("the server does not stop after the answer has ended")
	}
}

// If an answer is cut before its headers are sent, the client sends the request again.
func TestCutBeforeTheAnswer(t *testing.T) {
	requests := 0
	cfg := config()
	cfg.HTTP = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests == 1 {
			w.(parkedAnswer).Cut()
		}
	})
	address, _ := serve(t, cfg)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if requests != 2 || resp.StatusCode != http.StatusOK {
		t.Errorf("%d requests, the last one with %s", requests, resp.Status)
	}
}

// A server that drains while a connection opens its first streams still serves these streams.
func TestDrainOfFirstStreams(t *testing.T) {
	drained := make(chan error, 1)
	over, cancel := context.WithCancel(t.Context())
	cancel() // so that Drain returns at once
	var s *grpcserver.Server
	cfg := config()
	cfg.HTTP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case err := <-drained:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Drain with an open stream: %v", err)
			}
		case <-r.Context().Done():
		}
	})
	var once sync.Once
	cfg.Turn = func(context.Context, net.Addr) (func(), error) { // during the frames that follow the greeting
		once.Do(func() { drained <- s.Drain(over) })
		return func() {}, nil
	}
	var address string
	address, s = serve(t, cfg)
	c := connect(t, address)
	first := bytes.NewBufferString(http2.ClientPreface)
	all := http2.NewFramer(first, nil)
	c.must(all.WriteSettings())
	get := c.block(":method", http.MethodGet, ":scheme", "http", ":path", "/", ":authority", "x")
	c.must(all.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: get, EndStream: true, EndHeaders: true}))
	for range 100 {
		c.must(all.WriteWindowUpdate(0, 1))
	}
	c.write(first.Bytes())
	for {
		if f, ok := c.next().(*http2.DataFrame); ok && f.StreamEnded() {
			return
		}
	}
}

// A server that drains serves open streams to their end, accepts no connection, and tells clients
// to begin no more streams.
func TestServerDrain(t *testing.T) {
	client, url, s, answers := startParking(t)
	p, _, lines := begin(t, client, url, answers)
	idle, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")) // a client that sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Drain with an open stream: %v", err)
	}
	_, _ = io.Copy(io.Discard, idle) // until the idle connection ends
	if _, err := io.WriteString(p, "last\n"); err != nil {
		t.Fatal(err)
	}
	if err := p.FlushError(); err != nil || !lines.Scan() || lines.Text() != "last" {
		t.Fatalf("the client reads %q: %v", lines.Text(), err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Do(req); err == nil { // on a new connection, because the other one drains
		resp.Body.Close()
		t.Error("a request was accepted while the server drains")
	}
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	p.End()
	select {
	case err := <-drained:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Drain does not return after the last stream has ended")
	}
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("after the end: %q, %v", lines.Text(), lines.Err())
	}
}
