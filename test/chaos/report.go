package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// Cycle is the result of one cycle. As JSON it is one line of a report; reports of several runs can
// be combined.
type Cycle struct {
	Fault   string    `json:"fault"`
	Seed    uint64    `json:"seed"`
	Started time.Time `json:"started"`
	// Setting is the run's configuration in words.
	Setting string `json:"setting"`
	// Node is the victim, or after a lost quorum the remaining node. It is empty if the fault had
	// no single node.
	Node string `json:"node,omitempty"`
	// Owned is the number of shards it owned when the fault struck.
	Owned int `json:"owned,omitempty"`
	// Void is the reason why the cycle does not count; empty: it counts.
	Void string `json:"void,omitempty"`
	// Error is the reason why the run could not continue; empty: it could.
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"`
	// Broken is the duration of the fault, Ready the time from its end until all nodes were ready,
	// both in seconds.
	Broken          float64 `json:"broken_seconds"`
	Ready           float64 `json:"ready_seconds"`
	WritesPerSecond float64 `json:"writes_per_second"`
	// Events is the number of events delivered and judged since the fault.
	Events int `json:"events"`
	// Reads is the number of answers to reads, all judged; Refused counts the errors.
	Reads   int `json:"reads"`
	Refused int `json:"refused"`
	// Written is the number of keys in attempted writes through the nodes, all judged; Unknown
	// counts the writes without an answer by error.
	Written int            `json:"written"`
	Unknown map[string]int `json:"unknown,omitempty"`
	// Printed is the number of lines of the programs of examples/, all judged; Deaths counts their
	// kills and restarts.
	Printed int `json:"printed"`
	Deaths  int `json:"deaths"`
	// Compactions counts compactions of etcd.
	Compactions int `json:"compactions"`
	// Violations counts violations of all promises; the first are kept in words.
	Violations int      `json:"violations"`
	First      []string `json:"first_violations,omitempty"`
	// Clients has the results by kind of client.
	Clients []Part `json:"clients"`
	// ListsAtEtcd is the number of requests by nodes for the keys of a range: from the nodes' own
	// metrics or from etcd's log, whichever is greater.
	ListsAtEtcd int `json:"lists_at_etcd"`
	// ListsPassed is the number of lists by clients of etcd's API that nodes forwarded.
	ListsPassed int `json:"lists_passed"`
	// ListSample is one of the lists in etcd's log.
	ListSample string `json:"list_sample,omitempty"`
	// WatchesAtEtcd is the maximum number of watch streams at etcd, including the run's own;
	// WatchesAllowed is its bound.
	WatchesAtEtcd  int `json:"watches_at_etcd_max"`
	WatchesAllowed int `json:"watches_at_etcd_allowed"`
}

// note keeps the first violations in words.
func (c *Cycle) note(vs []check.Violation) {
	const most = 50
	for _, v := range vs[:min(len(vs), max(0, most-len(c.First)))] {
		c.First = append(c.First, v.String())
	}
}

// String returns the cycle in one line.
func (c Cycle) String() string {
	s := fmt.Sprintf("%s %s: %.0f s, %.0f writes/s, %d events judged, %d lines of programs that were killed %d times, %d violations", c.Fault, c.Node, c.Seconds, c.WritesPerSecond, c.Events, c.Printed, c.Deaths, c.Violations)
	for _, p := range c.Clients {
		if p.Watches > 0 {
			s += fmt.Sprintf(", %s late %s", p.Client, quantiles(p.Late.all()))
		}
	}
	s += fmt.Sprintf(", %d lists, native %+v", c.ListsAtEtcd, c.partOf(string(nativeClient)).CatchUps)
	if c.Void != "" {
		s += "; VOID: " + c.Void
	}
	return s
}

// Report is the result of several cycles.
type Report struct {
	Cycles []Cycle
	// Error is the reason why the run ended early.
	Error string

	setting string
	seen    map[check.Violation]bool
}

func newReport(cfg Config) Report { return Report{setting: setting(cfg)} }

func setting(cfg Config) string {
	s := fmt.Sprintf("%d nodes, %d shards × %d replicas, %d watches (%d %% prefixes, %d %% everything, the rest single keys) by API %s over %d clients of each kind, target of %d writes/s",
		cfg.Nodes, cfg.Shards, cfg.Replicas, cfg.Watches, cfg.Mix.Prefixes, cfg.Mix.Everything, strings.Join(cfg.APIs, " and "), cfg.Clients, cfg.Rate)
	if slices.Contains(cfg.APIs, Etcd) {
		s += fmt.Sprintf(" (%d %% through the nodes)", cfg.Passed)
	}
	return s + fmt.Sprintf(", %d keys, a window of %v", cfg.Prefixes*cfg.Keys, cfg.Window)
}

func (r *Report) add(c Cycle) {
	c.Setting = r.setting
	r.Cycles = append(r.Cycles, c)
}

// fresh returns the violations that are not in the report yet.
func (r *Report) fresh(vs []check.Violation) (out []check.Violation) {
	if r.seen == nil {
		r.seen = map[check.Violation]bool{}
	}
	for _, v := range vs {
		if !r.seen[v] {
			r.seen[v] = true
			out = append(out, v)
		}
	}
	return out
}

// Violations returns the first violations of each cycle in words.
func (r *Report) Violations() (out []string) {
	for _, c := range r.Cycles {
		out = append(out, c.First...)
	}
	return out
}

// Failed returns the failures that no run may have, however loaded the machine is: violations, and
// more watches at etcd than the tier may use. It is empty if the run kept every promise.
func (r *Report) Failed() []string {
	var out []string
	for _, c := range r.Cycles {
		if c.Violations > 0 {
			out = append(out, fmt.Sprintf("%s: %d violations", c.Fault, c.Violations))
		}
		if c.WatchesAtEtcd > c.WatchesAllowed {
			out = append(out, fmt.Sprintf("%s: %d streams of watches at etcd, %d allowed", c.Fault, c.WatchesAtEtcd, c.WatchesAllowed))
		}
	}
	if r.Error != "" {
		out = append(out, "ended early: "+strings.SplitN(r.Error, "\n", 2)[0])
	}
	return out
}

// delays are the longest delays of our watches relative to etcd's own watch, one for each watcher
// and cycle: of watchers that stayed on their node, and of watchers that had to move.
type delays struct {
	Stayed millis `json:"stayed"`
	Moved  millis `json:"moved"`
}

func (d delays) all() []time.Duration { return slices.Concat(d.Stayed, d.Moved) }

// millis are durations, encoded in milliseconds, in order.
type millis []time.Duration

func (m millis) MarshalJSON() ([]byte, error) {
	out := make([]int64, len(m))
	for i, d := range m {
		out[i] = d.Milliseconds()
	}
	slices.Sort(out)
	return json.Marshal(out)
}

// UnmarshalJSON reads the output of MarshalJSON.
func (m *millis) UnmarshalJSON(b []byte) error {
	var in []int64
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*m = make(millis, len(in))
	for i, n := range in {
		(*m)[i] = time.Duration(n) * time.Millisecond
	}
	return nil
}

// Quantiles summarise many durations.
type Quantiles struct {
	Count         int
	P50, P99, Max time.Duration
}

// quantiles returns the nearest-rank quantiles of ds.
func quantiles(ds []time.Duration) Quantiles {
	if len(ds) == 0 {
		return Quantiles{}
	}
	s := slices.Sorted(slices.Values(ds))
	at := func(percent int) time.Duration { return s[(len(s)*percent+99)/100-1] }
	return Quantiles{Count: len(s), P50: at(50), P99: at(99), Max: s[len(s)-1]}
}

// String returns the quantiles in words.
func (q Quantiles) String() string {
	if q.Count == 0 {
		return "–"
	}
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	return ms(q.P50) + "/" + ms(q.P99) + "/" + ms(q.Max)
}
