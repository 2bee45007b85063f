package clients_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/test/conformance"
)

// TestServerSentEvents watches with HTTP alone, as a browser does: when the connection ends
// it asks the next node, with the id of the last event. Two of three nodes are killed.
func TestServerSentEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an etcd and nodes")
	}
	survives(t, eventSource(get), 2)
}

// TestServerSentEventsWithCurl does the same with curl in a loop.
func TestServerSentEventsWithCurl(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an etcd and nodes")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	survives(t, eventSource(curl), 2)
}

// eventSource is a client that knows nothing but server-sent events. request passes the lines
// of an answer on until the connection ends.
func eventSource(request func(ctx context.Context, url, last string, pass func(io.Reader)) error) func(context.Context, conformance.Task, func(conformance.Update)) error {
	return func(ctx context.Context, task conformance.Task, emit func(conformance.Update)) error {
		last := ""
		for i := 0; ctx.Err() == nil; i++ {
			url := "http://" + task.Endpoints[i%len(task.Endpoints)] + "/v1/watch?prefix=" + task.Key + "&state=true"
			pass := func(body io.Reader) { read(bufio.NewScanner(body), &last, emit) }
			_ = request(ctx, url, last, pass) // a node may be dead
		}
		return nil
	}
}

func get(ctx context.Context, url, last string, pass func(io.Reader)) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := web.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		pass(resp.Body)
	}
	return nil
}

func curl(ctx context.Context, url, last string, pass func(io.Reader)) error {
	cmd := exec.CommandContext(ctx, "curl", "--silent", "--fail", "--no-buffer", "--header", "Last-Event-ID: "+last, url)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	pass(out)
	_, _ = io.Copy(io.Discard, out) // so that curl can end
	return cmd.Wait()
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
