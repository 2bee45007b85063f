package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/mirror"
)

// step is a line of the output. Events has one for each key that differs from the line before.
type step struct {
	client.Position
	Initial, Resync bool
	Events          []event
}

// event is a key with its value before and after; nil: it does not exist.
type event struct {
	Key           string
	Before, After *string
}

func output(c mirror.Change) {
	s := step{Position: c.View.Position(), Initial: c.Initial, Resync: c.Resync}
	for _, e := range c.Events {
		out := event{Key: string(e.KV.Key)}
		if e.Prev != nil {
			before := string(e.Prev.Value)
			out.Before = &before
		}
		if e.Type != client.EventDelete {
			after := string(e.KV.Value)
			out.After = &after
		}
		s.Events = append(s.Events, out)
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		log.Fatal(err)
	}
}
