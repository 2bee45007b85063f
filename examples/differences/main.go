// Command differences prints the changes of the keys under a prefix, one line of JSON
// for each step: differences PREFIX ENDPOINT...
package main

import (
	"context"
	"log"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/mirror"
)

func main() {
	prefix, endpoints := arguments()
	c, err := client.New(client.Config{Endpoints: endpoints})
	if err != nil {
		log.Fatal(err)
	}
	local := mirror.New(context.Background(), c, client.Prefix(prefix))
	for change, err := range local.Changes(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		output(change)
	}
}
