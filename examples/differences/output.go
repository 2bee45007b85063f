package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/mirror"
)

// arguments returns the command line arguments. It ends the program if one is missing.
func arguments() (prefix string, endpoints []string) {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: differences PREFIX ENDPOINT...")
		os.Exit(2)
	}
	return os.Args[1], os.Args[2:]
}

// step is a line of the output. Events has one event for each key that differs from the last line.
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
