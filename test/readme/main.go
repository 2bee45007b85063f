// Command readme is the Go program of the README, so that the compiler checks it.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/mirror"
)

func main() {
	ctx := context.Background()
	c, err := client.New(client.Config{Endpoints: []string{"127.0.0.1:7400"}})
	if err != nil {
		log.Fatal(err)
	}
	for change, err := range mirror.New(ctx, c, client.Prefix("/demo/")).Changes(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range change.Events {
			fmt.Println(e.Type, string(e.KV.Key), string(e.KV.Value))
		}
	}
}
