package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/shardwatch/shardwatch/client"
)

// arguments returns the command line arguments. It ends the program if one is missing.
func arguments() (prefix string, endpoints []string) {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: settings PREFIX ENDPOINT...")
		os.Exit(2)
	}
	return os.Args[1], os.Args[2:]
}

// line is a line of the output: a setting before and after a change, nil if it does not
// exist, or an invalid value.
type line struct {
	Key           string
	Before, After *setting

	Invalid  bool
	Value    string
	Revision int64
}

func changed(key string, before, after *setting) {
	output(line{Key: key, Before: before, After: after})
}

func invalid(kv client.KeyValue, _ error) {
	output(line{Key: string(kv.Key), Invalid: true, Value: string(kv.Value), Revision: kv.ModRevision})
}

func output(l line) {
	if err := json.NewEncoder(os.Stdout).Encode(l); err != nil {
		log.Fatal(err)
	}
}
