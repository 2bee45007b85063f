// Command settings keeps the keys under a prefix as decoded values and prints each change, one
// line of JSON each: settings PREFIX ENDPOINT...
package main

import (
	"context"
	"log"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/mirror"
)

type setting struct {
	Value string `json:"v"`
}

func main() {
	prefix, endpoints := arguments()
	c, err := client.New(client.Config{Endpoints: endpoints})
	if err != nil {
		log.Fatal(err)
	}
	settings := mirror.NewTyped(context.Background(), c, client.Prefix(prefix), mirror.Config[setting]{OnChange: changed, OnInvalid: invalid})
	<-settings.Done()
	log.Fatal(settings.Raw().Err())
}
