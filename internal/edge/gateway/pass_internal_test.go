package gateway

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc/peer"
)

// Each piece of an answer waits for a turn of the client, and is not written without one.
func TestPiecesOfAnswersPass(t *testing.T) {
	var passed, left int
	var refused error
	p := pace{turn: func() (func(), error) {
		if passed++; passed != left+1 {
			t.Errorf("turn %d begins after only %d turns have ended", passed, left)
		}
		return func() { left++ }, refused
	}}
	var out bytes.Buffer
	forever := func(time.Time) error { return nil }
	if n, err := p.write(&out, forever, make([]byte, 3*piece)); n != 3*piece || err != nil || passed != 3 {
		t.Errorf("%d bytes in %d pieces: %v", n, passed, err)
	}
	refused = errors.New("not now")
	if n, err := p.write(&out, forever, []byte("more")); n != 0 || !errors.Is(err, refused) || out.Len() != 3*piece {
		t.Errorf("%d bytes were written without a turn: %v", n, err)
	}
}

// Answers over HTTP/2 take turns by the address of their client.
func TestAnswersPassByAddress(t *testing.T) {
	client := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	var asked []net.Addr
	left := 0
	g, err := New(Config{Turn: func(_ context.Context, who net.Addr) (func(), error) {
		asked = append(asked, who)
		return func() { left++ }, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/no/such/page", http.NoBody)
	r.ProtoMajor = 2
	r = r.WithContext(peer.NewContext(t.Context(), &peer.Peer{Addr: client}))
	g.ServeHTTP(httptest.NewRecorder(), r)
	if len(asked) != 1 || asked[0] != client || left != 1 {
		t.Errorf("turns requested for %v, %d ended; want one for %v", asked, left, client)
	}
}
