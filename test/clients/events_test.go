package clients_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/test/conformance"
)

// TestServerSentEvents watches with HTTP alone, as curl or a browser does: when the connection
// ends it asks the next node, with the id of the last event. Two of three nodes are killed.
func TestServerSentEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an etcd and nodes")
	}
	survives(t, eventSource, 2)
}

// eventSource is a client that knows nothing but server-sent events.
func eventSource(ctx context.Context, task conformance.Task, emit func(conformance.Update)) error {
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	last := ""
	for i := 0; ctx.Err() == nil; i++ {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+task.Endpoints[i%len(task.Endpoints)]+"/v1/watch?prefix="+task.Key+"&state=true", nil)
		if err != nil {
			return err
		}
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		resp, err := web.Do(r)
		if err != nil {
			continue // the node is dead
		}
		if resp.StatusCode == http.StatusOK {
			read(bufio.NewScanner(resp.Body), &last, emit)
		}
		_ = resp.Body.Close()
	}
	return nil
}

// read hands out events until the connection ends. An event without an id is a part.
func read(lines *bufio.Scanner, last *string, emit func(conformance.Update)) {
	var name, id string
	var u conformance.Update
	for lines.Scan() {
		field, text, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "event":
			name = text
		case "id":
			id = text
		case "data":
			var part struct {
				Revision     int64
				Events, Keys []conformance.Event
			}
			if json.Unmarshal([]byte(text), &part) != nil {
				return // it was cut
			}
			u.Revision = part.Revision
			for _, e := range part.Keys {
				u.KVs = append(u.KVs, conformance.KeyValue{Key: e.Key, Value: e.Value})
			}
			u.Events = append(u.Events, part.Events...)
		case "": // the end of an event
			if id == "" {
				continue
			}
			*last, id = id, ""
			if u.Kind = name; name == "events" {
				u.Kind = "batch"
			}
			if name != "created" && name != "progress" {
				emit(u)
			}
			u = conformance.Update{}
		}
	}
}
