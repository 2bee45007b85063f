package authz_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// A connection ends a moment after its identity has lost its last right, but not if it keeps or regains a right.
func TestAnIdentityWithoutRightsIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, granting("/a/", ""), nil)
		connect := func(pairs ...string) net.Conn {
			t.Helper()
			far, near := net.Pipe()
			conn, info, err := r.a.Credentials(insecure.NewCredentials()).ServerHandshake(near)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = far.Close(), conn.Close() })
			r.caller(with(peer.NewContext(context.Background(), &peer.Peer{Addr: near.RemoteAddr(), AuthInfo: info}), pairs...))
			return far
		}
		stands := func(c net.Conn) bool {
			t.Helper()
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			return !errors.Is(err, io.EOF)
		}
		reload := func(text string) {
			t.Helper()
			r.mount(text, r.keys)
			if err := r.a.Reload(); err != nil {
				t.Fatal(err)
			}
		}
		anyone, ann := connect(), connect("authorization", "Bearer "+r.token("ann", time.Hour))
		reload(granting("/b/", ""))
		time.Sleep(time.Minute)
		if !stands(anyone) || !stands(ann) {
			t.Error("a connection of an identity with rights ended")
		}
		without := strings.Replace(granting("/b/", ""), "[anonymous, authenticated]", `["sub:bob"]`, 1)
		reload(without)
		reload(granting("/b/", ""))
		time.Sleep(time.Minute)
		if !stands(anyone) {
			t.Error("a connection of an identity that regained its rights ended")
		}
		reload(without)
		if !stands(anyone) {
			t.Error("the connection ended before its client got the reason")
		}
		time.Sleep(2 * time.Second)
		if stands(anyone) {
			t.Error("the connection stays open without any right")
		}
		if !stands(ann) {
			t.Error("the connection of another identity ended")
		}
	})
}
