package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/shardwatch/shardwatch/internal/check"
)

// Cycle is what came of one cycle.
type Cycle struct {
	Number int    `json:"number"`
	Fault  string `json:"fault"`
	// Node was the victim; of a lost quorum the one that was left.
	Node string `json:"node"`
	// Owned is how many shards it owned when the fault struck.
	Owned int `json:"owned"`
	// Void says why the cycle does not count; empty: it does.
	Void            string  `json:"void,omitempty"`
	Seconds         float64 `json:"seconds"`
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
	// Violations of all promises.
	Violations int `json:"violations"`
	// Stayed and Moved are the longest delays, against etcd's own watch, of
	// watchers that kept their node and of those that had to move.
	Stayed Quantiles `json:"gap_stayed"`
	Moved  Quantiles `json:"gap_moved"`
	// Clients are the same by kind of client.
	Clients []Part `json:"clients"`
	// ListsAtEtcd are requests for the keys of a range, by nodes.
	ListsAtEtcd int `json:"lists_at_etcd"`
	// ListsPassed are those by clients of etcd's API that nodes passed on.
	ListsPassed int `json:"lists_passed"`
	// ListSample is one of them, as etcd logs it.
	ListSample string `json:"list_sample,omitempty"`
	// WatchesAtEtcd is the most that etcd had, ours of everything included.
	WatchesAtEtcd int `json:"watches_at_etcd_max"`

	gaps gaps
}

// String returns the cycle in one line.
func (c Cycle) String() string {
	s := fmt.Sprintf("%s %s (owner of %d shards): %.0f writes/s, %d events judged, %d violations, gap %s on nodes that stayed, %s moved",
		c.Fault, c.Node, c.Owned, c.WritesPerSecond, c.Events, c.Violations, c.Stayed, c.Moved)
	if c.Void != "" {
		s += "; VOID: " + c.Void
	}
	return s
}

// String returns the quantiles for people.
func (q Quantiles) String() string {
	if q.Count == 0 {
		return "–"
	}
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	return ms(q.P50) + "/" + ms(q.P99) + "/" + ms(q.Max)
}

// Report is what came of a run.
type Report struct {
	Started time.Time `json:"started"`
	// Setting is the configuration in words.
	Setting string `json:"setting"`
	Seed    uint64 `json:"seed"`
	// WatchesAllowed is shards × replicas, and one for our own.
	WatchesAllowed int     `json:"watches_at_etcd_allowed"`
	Cycles         []Cycle `json:"cycles"`
	// Faults sums the cycles up that count, by fault; Total all of them.
	Faults []Sum `json:"faults"`
	Total  Sum   `json:"total"`
	// Clients sums them up by kind of client.
	Clients []Part `json:"clients"`
	// Violations are the first ones, in words.
	Violations []string `json:"violations"`
	// Error says why the run ended early.
	Error string `json:"error,omitempty"`

	seen map[check.Violation]bool
}

// Sum is several cycles together.
type Sum struct {
	Fault           string    `json:"fault"`
	Cycles          int       `json:"cycles"`
	Void            int       `json:"void"`
	Events          int       `json:"events"`
	Reads           int       `json:"reads"`
	Refused         int       `json:"refused"`
	Violations      int       `json:"violations"`
	Stayed          Quantiles `json:"gap_stayed"`
	Moved           Quantiles `json:"gap_moved"`
	ListsAtEtcd     int       `json:"lists_at_etcd"`
	ListsPassed     int       `json:"lists_passed"`
	WatchesAtEtcd   int       `json:"watches_at_etcd_max"`
	WritesPerSecond float64   `json:"writes_per_second_min"`

	gaps gaps
}

func newReport(cfg Config) Report {
	return Report{
		Started: time.Now().UTC(), Seed: cfg.Seed, WatchesAllowed: cfg.Shards*cfg.Replicas + 1,
		Setting: setting(cfg),
		seen:    map[check.Violation]bool{},
	}
}

func setting(cfg Config) string {
	s := fmt.Sprintf("%d nodes, %d shards × %d replicas, %d watches (%d %% prefixes, %d %% everything, the rest single keys) by API %s over %d clients of each kind, %d writes/s aimed at",
		cfg.Nodes, cfg.Shards, cfg.Replicas, cfg.Watches, cfg.Mix.Prefixes, cfg.Mix.Everything, strings.Join(cfg.APIs, " and "), cfg.Clients, cfg.Rate)
	if slices.Contains(cfg.APIs, Etcd) {
		s += fmt.Sprintf(" (%d %% through the nodes)", cfg.Passed)
	}
	return s + fmt.Sprintf(", %d keys", cfg.Prefixes*cfg.Keys)
}

func (r *Report) add(c Cycle) { r.Cycles = append(r.Cycles, c) }

// note keeps the first violations, each once.
func (r *Report) note(vs []check.Violation) {
	const most = 200
	for _, v := range vs {
		if !r.seen[v] && len(r.Violations) < most {
			r.seen[v] = true
			r.Violations = append(r.Violations, v.String())
		}
	}
}

// finish sums up.
func (r *Report) finish() {
	at := map[string]int{}
	for _, c := range r.Cycles {
		if _, ok := at[c.Fault]; !ok {
			at[c.Fault] = len(r.Faults)
			r.Faults = append(r.Faults, Sum{Fault: c.Fault})
		}
		r.Faults[at[c.Fault]].add(c)
		r.Total.add(c)
		r.Clients = sumParts(r.Clients, c.Clients, c.Void == "")
	}
	r.Total.Fault = "all"
	for i := range r.Faults {
		r.Faults[i].finish()
	}
	r.Total.finish()
}

func (s *Sum) add(c Cycle) {
	s.Violations += c.Violations
	s.Events += c.Events
	s.Reads += c.Reads
	s.Refused += c.Refused
	s.ListsAtEtcd += c.ListsAtEtcd
	s.ListsPassed += c.ListsPassed
	s.WatchesAtEtcd = max(s.WatchesAtEtcd, c.WatchesAtEtcd)
	if c.Void != "" {
		s.Void++
		return
	}
	if s.Cycles == 0 || c.WritesPerSecond < s.WritesPerSecond {
		s.WritesPerSecond = c.WritesPerSecond
	}
	s.Cycles++
	s.gaps.add(c.gaps)
}

func (s *Sum) finish() { s.Stayed, s.Moved = quantiles(s.gaps.Stayed), quantiles(s.gaps.Moved) }

// Failed returns what a run must not have: violations, and more of etcd than
// the tier may use. Empty: it kept every promise.
func (r *Report) Failed() []string {
	var out []string
	if r.Total.Violations > 0 {
		out = append(out, fmt.Sprintf("%d violations", r.Total.Violations))
	}
	if r.Total.ListsAtEtcd > 0 {
		out = append(out, fmt.Sprintf("%d lists at etcd", r.Total.ListsAtEtcd))
	}
	if r.Total.WatchesAtEtcd > r.WatchesAllowed {
		out = append(out, fmt.Sprintf("%d watches at etcd, %d allowed", r.Total.WatchesAtEtcd, r.WatchesAllowed))
	}
	if r.Error != "" {
		out = append(out, "ended early: "+strings.SplitN(r.Error, "\n", 2)[0])
	}
	return out
}

var columns = []string{
	"fault", "cycles", "void", "events judged", "reads judged", "violations",
	"gap stayed p50/p99/max", "gap moved p50/p99/max", "lists at etcd", "passed on", "watches at etcd", "writes/s",
}

func (s Sum) cells() []string {
	return []string{
		s.Fault, fmt.Sprint(s.Cycles), fmt.Sprint(s.Void), fmt.Sprint(s.Events),
		fmt.Sprintf("%d (%d refused)", s.Reads, s.Refused), fmt.Sprint(s.Violations),
		s.Stayed.String(), s.Moved.String(), fmt.Sprint(s.ListsAtEtcd), fmt.Sprint(s.ListsPassed), fmt.Sprint(s.WatchesAtEtcd),
		fmt.Sprintf("≥ %.0f", s.WritesPerSecond),
	}
}

// Table writes the report for a terminal.
func (r *Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ToUpper(strings.Join(columns, "\t")))
	for _, s := range append(r.Faults, r.Total) {
		fmt.Fprintln(t, strings.Join(s.cells(), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "\n"+strings.ToUpper(strings.Join(partColumns, "\t")))
	for _, p := range r.Clients {
		fmt.Fprintln(t, strings.Join(p.cells(), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, v := range r.Violations[:min(len(r.Violations), 20)] {
		if _, err := fmt.Fprintln(w, "  "+v); err != nil {
			return err
		}
	}
	return nil
}

// JSON writes the report for programs.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Markdown writes the report for a page.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	fmt.Fprintf(&b, "# Chaos run of %s\n\n%s; seed %d.\n\n", r.Started.Format(time.DateTime), r.Setting, r.Seed)
	if f := r.Failed(); len(f) > 0 {
		fmt.Fprintf(&b, "**Failed:** %s.\n\n", strings.Join(f, "; "))
	} else {
		fmt.Fprintf(&b, "Every promise was kept.\n\n")
	}
	row(columns)
	b.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	for _, s := range append(r.Faults, r.Total) {
		row(s.cells())
	}
	fmt.Fprintf(&b, "\nGaps are the longest delay of each watcher in each cycle, from the fault on, against a watch at etcd itself. "+
		"Lists passed on are those of clients of etcd's API that nodes could not answer. "+
		"Watches at etcd: at most %d are allowed, one of them the run's own.\n\n## Clients\n\n", r.WatchesAllowed)
	row(partColumns)
	b.WriteString(strings.Repeat("|---", len(partColumns)) + "|\n")
	for _, p := range r.Clients {
		row(p.cells())
	}
	b.WriteString("\n## Cycles\n\n")
	row(append([]string{"#", "node"}, columns[3:]...))
	b.WriteString(strings.Repeat("|---", len(columns)-1) + "|\n")
	for _, c := range r.Cycles {
		var s Sum
		s.add(c)
		s.Stayed, s.Moved, s.WritesPerSecond = c.Stayed, c.Moved, c.WritesPerSecond
		cells := s.cells()[3:]
		cells[len(cells)-1] = fmt.Sprintf("%.0f", c.WritesPerSecond)
		if c.Void != "" {
			cells[len(cells)-1] += " (void)"
		}
		row(append([]string{fmt.Sprint(c.Number), c.Fault + " " + c.Node}, cells...))
	}
	if len(r.Violations) > 0 {
		b.WriteString("\n## Violations\n\n")
		for _, v := range r.Violations {
			fmt.Fprintf(&b, "- %s\n", v)
		}
	}
	if r.Error != "" {
		fmt.Fprintf(&b, "\n## Ended early\n\n```\n%s\n```\n", r.Error)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
