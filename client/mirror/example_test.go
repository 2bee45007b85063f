package mirror_test

import (
	"context"
	"fmt"
	"log"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/internal/scripted"
	"github.com/shardwatch/shardwatch/client/mirror"
)

func ExampleNew() {
	c, end := scripted.Example()
	defer end()
	ctx := context.Background()

	m := mirror.New(ctx, c, client.Prefix("/demo/"))
	defer m.Close()
	<-m.Ready()
	at, err := c.Put(ctx, "/demo/a", []byte("hello"))
	if err != nil {
		log.Fatal(err)
	}
	if err := m.WaitFor(ctx, at); err != nil { // read your own write
		log.Fatal(err)
	}
	kv, ok := m.Get("/demo/a")
	fmt.Println(ok, string(kv.Value), m.Len())
	// Output: true hello 1
}

// Typed configuration: each value is decoded once, read without the network, and reported
// when it changes. A value that cannot be decoded leaves the last good one in place.
func ExampleNewTyped() {
	c, end := scripted.Example(`/routes/a={"host":"example.org","weight":1}`)
	defer end()
	ctx := context.Background()
	type Route struct {
		Host   string
		Weight int
	}

	told := make(chan struct{}, 10)
	routes := mirror.NewTyped(ctx, c, client.Prefix("/routes/"), mirror.Config[Route]{
		OnChange: func(key string, before, after *Route) { fmt.Println(key, before, after); told <- struct{}{} },
		OnInvalid: func(kv client.KeyValue, err error) {
			fmt.Printf("%s stays as it was: %v\n", kv.Key, err)
			told <- struct{}{}
		},
		Indexes: map[string]func(string, Route) []string{
			"host": func(_ string, r Route) []string { return []string{r.Host} },
		},
	})
	if err := routes.Sync(ctx); err != nil {
		log.Fatal(err)
	}
	for key, r := range routes.By("host", "example.org") {
		fmt.Println(key, r.Weight)
	}
	<-told
	for _, value := range []string{`{"host":"example.org","weight":2}`, `{"host":`} {
		if _, err := c.Put(ctx, "/routes/a", []byte(value)); err != nil {
			log.Fatal(err)
		}
		<-told
	}
	r, ok := routes.Get("/routes/a")
	fmt.Println(r.Weight, ok)
	// Output:
	// /routes/a <nil> &{example.org 1}
	// /routes/a 1
	// /routes/a &{example.org 1} &{example.org 2}
	// /routes/a stays as it was: unexpected end of JSON input
	// 2 true
}
