package port

import (
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
)

// Events that are written together arrive as separate messages.
func TestEachEventIsAMessageOfItsOwn(t *testing.T) {
	server := httptest.NewServer(websocket.Server{Handler: func(conn *websocket.Conn) {
		s := NewSocket(conn)
		if n, err := s.Write([]byte("{\"a\":1}\n{\"b\":2}\n")); n != 16 || err != nil {
			t.Errorf("wrote %d: %v", n, err)
		}
	}})
	defer server.Close()
	conn, err := websocket.Dial("ws"+strings.TrimPrefix(server.URL, "http"), "", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, want := range []string{"{\"a\":1}\n", "{\"b\":2}\n"} {
		var got string
		if err := websocket.Message.Receive(conn, &got); err != nil || got != want {
			t.Errorf("got %q, want %q: %v", got, want, err)
		}
	}
}
