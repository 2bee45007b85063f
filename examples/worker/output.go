package main

import (
	"encoding/json"
	"os"

	"github.com/shardwatch/shardwatch/client"
)

// job is a line of the output.
type job struct {
	client.Position
	Kind  string
	From  int64 // of a delta: the revision of the update before
	Reset bool  // keys of former lines are not known to exist
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
