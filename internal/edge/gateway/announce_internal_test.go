package gateway

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// A send is announced only if it waits for the client.
func TestSendsAnnounceThatTheyWait(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waits := make(chan struct{}, 1)
	st := &stream{
		services: &services{codec: wire.NewCodec()}, transport: newTransport("/"), server: ctx, x: new(exchange), toClient: make(chan message),
	}
	st.transport.Announce(func() { waits <- struct{}{} })
	sent := make(chan error, 1)
	go func() { sent <- serverStream{st}.SendMsg(new(etcdserverpb.WatchResponse)) }()
	select {
	case <-waits:
	case err := <-sent:
		t.Fatalf("a send without a reader returned: %v", err)
	}
	(<-st.toClient).data.Free()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	st.toClient = make(chan message, 1) // a reader waits
	if err := (serverStream{st}).SendMsg(new(etcdserverpb.WatchResponse)); err != nil {
		t.Fatal(err)
	}
	if len(waits) > 0 {
		t.Error("a send that did not wait was announced")
	}
}
