package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/shardwatch/shardwatch/client"
)

// arguments returns the command line arguments. It ends the program if one is missing.
func arguments() (file, prefix string, endpoints []string) {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: worker FILE PREFIX ENDPOINT...")
		os.Exit(2)
	}
	return os.Args[1], os.Args[2], os.Args[3:]
}

// job is a line of the output.
type job struct {
	client.Position
	Kind  string
	From  int64 // of a delta: the revision of the update before
	Reset bool  // keys of earlier lines are not known to exist
	Steps []step
}

// step is a key with its new value; nil: it is deleted.
type step struct {
	Key   string
	Value *string
}

func (w *job) put(kv client.KeyValue) error {
	value := string(kv.Value)
	w.Steps = append(w.Steps, step{string(kv.Key), &value})
	return nil
}

func (w *job) remove(key []byte) error {
	w.Steps = append(w.Steps, step{Key: string(key)})
	return nil
}

func (w *job) reset() error {
	w.Reset = true
	return nil
}

func (w *job) output(u client.Update) error {
	w.Position, w.Kind, w.From = u.Position(), u.Kind.String(), u.From
	return json.NewEncoder(os.Stdout).Encode(w)
}
