// Command settings keeps the keys below a prefix as decoded values and prints each change, as a
// line of JSON: settings PREFIX ENDPOINT...
package main

import (
	"context"
	"log"
	"os"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/mirror"
)

type setting struct {
	Value string `json:"v"`
}

func main() {
	c, err := client.New(client.Config{Endpoints: os.Args[2:]})
	if err != nil {
		log.Fatal(err)
	}
	settings := mirror.NewTyped(context.Background(), c, client.Prefix(os.Args[1]), mirror.Config[setting]{OnChange: changed, OnInvalid: invalid})
	<-settings.Done()
	log.Fatal(settings.Raw().Err())
}
