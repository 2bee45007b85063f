// Command worker prints each update of the keys under a prefix, one line of JSON each. When it
// is started again, it resumes after the position in FILE: worker FILE PREFIX ENDPOINT...
package main

import (
	"context"
	"log"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/follow"
)

func main() {
	file, prefix, endpoints := arguments()
	c, err := client.New(client.Config{Endpoints: endpoints})
	if err != nil {
		log.Fatal(err)
	}
	work := func(_ context.Context, u client.Update) error {
		var did job
		if err := u.Apply(did.put, did.remove, did.reset); err != nil {
			return err
		}
		return did.output(u)
	}
	log.Fatal(follow.Run(context.Background(), c, client.Prefix(prefix), follow.File(file), work))
}
