package chaos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// Cycle is the result of one cycle. As JSON it is a line of a report; lines of several runs add
// up.
type Cycle struct {
	Fault   string    `json:"fault"`
	Seed    uint64    `json:"seed"`
	Started time.Time `json:"started"`
	// Setting is the run's configuration in words.
	Setting string `json:"setting"`
	// Node was the victim; of a lost quorum the one that was left. Empty: it was
	// not one node's.
	Node string `json:"node,omitempty"`
	// Owned is the number of shards it owned when the fault struck.
	Owned int `json:"owned,omitempty"`
	// Void says why the cycle does not count; empty: it does.
	Void string `json:"void,omitempty"`
	// Error reports why the run could not continue; empty: it could.
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"`
	// Broken is how long the fault lasted, Ready how long it took from its end
	// until all nodes were ready, both in seconds.
	Broken          float64 `json:"broken_seconds"`
	Ready           float64 `json:"ready_seconds"`
	WritesPerSecond float64 `json:"writes_per_second"`
	// Events were delivered since the fault, and judged.
	Events int `json:"events"`
	// Reads were answered and judged, Refused were answered with an error.
	Reads   int `json:"reads"`
	Refused int `json:"refused"`
	// Written are keys that were to be written through the nodes, and judged;
	// Unknown are the errors that came for an answer, and how often.
	Written int            `json:"written"`
	Unknown map[string]int `json:"unknown,omitempty"`
	// Printed are lines of the programs of examples/, all judged, and Deaths how often one
	// was killed and started again.
	Printed int `json:"printed"`
	Deaths  int `json:"deaths"`
	// Compactions of etcd.
	Compactions int `json:"compactions"`
	// Violations of all promises, and the first of them in words.
	Violations int      `json:"violations"`
	First      []string `json:"first_violations,omitempty"`
	// Clients are parts by kind of client.
	Clients []Part `json:"clients"`
	// ListsAtEtcd are requests for the keys of a range, by nodes: as these count
	// them, or as etcd has logged them when that is more.
	ListsAtEtcd int `json:"lists_at_etcd"`
	// ListsPassed are those by clients of etcd's API that nodes passed on.
	ListsPassed int `json:"lists_passed"`
	// ListSample is one of them, as etcd logs it.
	ListSample string `json:"list_sample,omitempty"`
	// WatchesAtEtcd is the most streams of watches that etcd had, ours of
	// everything included, and WatchesAllowed how many it may have had.
	WatchesAtEtcd  int `json:"watches_at_etcd_max"`
	WatchesAllowed int `json:"watches_at_etcd_allowed"`
}

// note keeps the first violations, in words.
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

// Report is the result of some cycles.
type Report struct {
	Cycles []Cycle
	// Error reports why the run ended early.
	Error string

	setting string
	seen    map[check.Violation]bool
}

func newReport(cfg Config) Report { return Report{setting: setting(cfg)} }

func setting(cfg Config) string {
	s := fmt.Sprintf("%d nodes, %d shards × %d replicas, %d watches (%d %% prefixes, %d %% everything, the rest single keys) by API %s over %d clients of each kind, %d writes/s aimed at",
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

// fresh returns the violations that it has not been given before.
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

// Violations returns the first ones of each cycle, in words.
func (r *Report) Violations() (out []string) {
	for _, c := range r.Cycles {
		out = append(out, c.First...)
	}
	return out
}

// Failed returns the errors that no run may have, however loaded the machine is: violations, and
// more watches at etcd than the tier may use. Empty: it kept every promise.
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

// delays are the longest delays between etcd's own watch and ours, one for
// each watcher and cycle: of watchers that kept their node, and of those that
// had to go to another one.
type delays struct {
	Stayed millis `json:"stayed"`
	Moved  millis `json:"moved"`
}

func (d delays) all() []time.Duration { return slices.Concat(d.Stayed, d.Moved) }

// millis are durations that are written down in milliseconds, in order.
type millis []time.Duration

// MarshalJSON writes whole milliseconds.
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

// String returns the quantiles for people.
func (q Quantiles) String() string {
	if q.Count == 0 {
		return "–"
	}
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	return ms(q.P50) + "/" + ms(q.P99) + "/" + ms(q.Max)
}
