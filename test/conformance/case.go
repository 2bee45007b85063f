package conformance

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// The watched range, and the history that the nodes serve.
const (
	rangeStart = "/c/"
	rangeEnd   = "/c0"
	cluster    = "conformance"
	rebuilt    = "rebuilt" // the cluster of nodes that were rebuilt
)

// Task is the task of a client.
type Task struct {
	// Case is the name of the case.
	Case string `json:"case"`
	// Op is "watch", "list" or "get". A get reads Key. "together" is two watches and a get,
	// concurrently in one client.
	Op string `json:"op"`
	// Endpoints are host:port of the nodes.
	Endpoints []string `json:"endpoints"`
	Key       string   `json:"key"`
	RangeEnd  string   `json:"range_end"`
	// Start of a watch: "now", "state", "position" or "token".
	Start    string   `json:"start"`
	Position Position `json:"position"`
	// Token is in base64, as encoding/json writes bytes.
	Token []byte `json:"token,omitempty"`
	// Units allows units (allow_sync).
	Units bool `json:"units"`
	// ConflateMS is the interval of conflation in milliseconds; 0: none.
	ConflateMS int `json:"conflate_ms"`
	// Bearer is the token that the client's source of tokens always returns; empty: it has none.
	Bearer string `json:"bearer,omitempty"`
}

// Position is a revision in its history.
type Position struct {
	Cluster  string `json:"cluster"`
	Lineage  uint64 `json:"lineage"`
	Revision int64  `json:"revision"`
}

// Update is an update that a client delivers to its application. Progress is not reported.
type Update struct {
	// Kind is "batch", "state", "delta", "resync", "conflated", "list" or "get"; empty
	// with Error.
	Kind string `json:"kind,omitempty"`

	Position

	Events  []Event    `json:"events,omitempty"`
	KVs     []KeyValue `json:"kvs,omitempty"`     // in key order
	Deleted []string   `json:"deleted,omitempty"` // in key order
	// Error is the reason why the watch or the read ended: "invalid", "denied", "unauthenticated",
	// "compacted", "lineage" or "unavailable".
	Error string `json:"error,omitempty"`
}

// Event is a change of a key: Type is "PUT" or "DELETE".
type Event struct {
	Type  string `json:"type"`
	Key   string `json:"key"`
	Value string `json:"value"`
}

// KeyValue is a key with its value.
type KeyValue struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Client runs a task until ctx ends, and calls emit with each update.
type Client func(ctx context.Context, task Task, emit func(Update)) error

// Case is one rule of the protocol.
type Case struct {
	Name string `json:"case"`
	// Rule is the rule for the client.
	Rule string `json:"rule"`

	task   Task // Run sets Case, Endpoints and the fields that are the same for all cases
	want   []Update
	script func(s *script) error
	view   func(from, member *node) pb.MemberState // set by the script
	deaf   bool                                    // the first endpoint accepts connections and reads nothing
}

// errWant reports an unexpected update.
var errWant = errors.New("the client handed out something else")

// Run runs a case with a client, within limit.
func Run(ctx context.Context, c Case, client Client, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := newScript(ctx, c)
	if err != nil {
		return err
	}
	defer s.close()
	task := c.task
	task.Case, task.Endpoints, task.Key = c.Name, s.addresses(), rangeStart
	if task.Op == "" {
		task.Op = "watch"
	}
	if task.Op != "get" {
		task.RangeEnd = rangeEnd
	}
	if task.Start == "" {
		task.Start = "now"
	}
	updates, clientEnded := make(chan Update), make(chan error, 1)
	working, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		clientEnded <- client(working, task, func(u Update) {
			select {
			case updates <- u:
			case <-working.Done():
			}
		})
	}()
	defer func() { stop(); <-done }()
	scriptEnded := make(chan error, 1)
	go func() { scriptEnded <- c.script(s) }()
	return judge(ctx, c, s, updates, scriptEnded, clientEnded)
}

// judge compares the updates and ends with the case.
func judge(ctx context.Context, c Case, s *script, updates <-chan Update, scriptEnded, clientEnded <-chan error) error {
	got := 0
	for scripted := false; !scripted || got < len(c.want); {
		select {
		case u := <-updates:
			if got == len(c.want) {
				return fmt.Errorf("%w: %+v after all that was expected", errWant, u)
			}
			if !reflect.DeepEqual(u, c.want[got]) {
				return fmt.Errorf("%w:\n  got  %+v\n  want %+v", errWant, u, c.want[got])
			}
			got++
			s.handed <- struct{}{}
		case err := <-scriptEnded:
			if err != nil {
				return err
			}
			scripted, scriptEnded = true, nil
		case err := <-clientEnded:
			if err != nil || got < len(c.want) {
				return fmt.Errorf("the client ended after %d of %d updates: %w", got, len(c.want), errors.Join(err, errWant))
			}
			clientEnded = nil
		case <-ctx.Done():
			return fmt.Errorf("the client did nothing more after %d of %d updates (script ended: %v)", got, len(c.want), scripted)
		}
	}
	return nil
}
