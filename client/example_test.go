package client_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// exampleCluster replaces the addresses of a real cluster.
func exampleCluster() (endpoints []string, stop func()) {
	c, err := clienttest.Start(clienttest.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return c.Endpoints(), func() { _ = c.Close() }
}

func Example() {
	endpoints, stop := exampleCluster()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Config{Endpoints: endpoints})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	at, err := c.Put(ctx, "/demo/a", []byte("hello"))
	if err != nil {
		log.Fatal(err)
	}
	if _, _, err := c.Delete(ctx, client.Key("/demo/a")); err != nil {
		log.Fatal(err)
	}

	// WithoutResync: each event or an error. Without it, updates that are no events may take the
	// place of some, as Update.Apply knows.
	w := c.Watch(ctx, client.Prefix("/demo/"), client.FromRevision(at.Revision), client.WithPrevKV(), client.WithoutResync())
	defer w.Close()
	for u, err := range w.Updates() {
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range u.Events {
			if e.Type == client.EventDelete {
				fmt.Printf("%d %s %s, it was %s\n", u.Revision, e.Type, e.KV.Key, e.Prev.Value)
				return
			}
			fmt.Printf("%d %s %s %s\n", u.Revision, e.Type, e.KV.Key, e.KV.Value)
		}
	}
	// Output:
	// 2 PUT /demo/a hello
	// 3 DELETE /demo/a, it was hello
}

// A controller in Kubernetes uses the Secret of a cert-manager Certificate: files that
// cert-manager renews are used without a restart.
func ExampleTLSFiles() {
	const secret = "/etc/shardwatch-client/"
	c, err := client.New(client.Config{
		Endpoints: []string{"shardwatch.shardwatch.svc:7400"},
		TLSFiles:  client.TLSFiles{CA: secret + "ca.crt", Cert: secret + "tls.crt", Key: secret + "tls.key"},
		Logger:    slog.Default(), // reports unusable files
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
}

func ExampleClient_List() {
	endpoints, stop := exampleCluster()
	defer stop()
	ctx := context.Background()
	c, err := client.New(client.Config{Endpoints: endpoints})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, key := range []string{"/demo/a", "/demo/b", "/demo/c"} {
		if _, err := c.Put(ctx, key, []byte("x")); err != nil {
			log.Fatal(err)
		}
	}

	l := c.List(ctx, client.Prefix("/demo/"), client.Limit(2))
	for kv, err := range l.All() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s = %s\n", kv.Key, kv.Value)
	}
	fmt.Println("at revision", l.Revision())
	l = c.List(ctx, client.Prefix("/demo/"), client.Page(l.NextPage()))
	for kv, err := range l.All() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s = %s\n", kv.Key, kv.Value)
	}
	// Output:
	// /demo/a = x
	// /demo/b = x
	// at revision 4
	// /demo/c = x
}
