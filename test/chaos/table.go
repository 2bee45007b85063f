package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// row is the result of all cycles of a fault.
type row struct {
	fault        string
	cycles, void int
	events       int
	violations   int
	late         map[kind][]time.Duration
	worst        map[kind]string
	worstAt      map[kind]time.Duration
	lists        int
	list         string // a sample
	catchUps     map[kind]catchUps
	joins        catchUps // of late native clients
	writes       float64  // the minimum per second of any cycle
	ready        time.Duration
	errors       []string
}

func (r *row) add(c Cycle) {
	r.events += c.Events
	r.violations += c.Violations
	if c.Error != "" {
		r.errors = append(r.errors, strings.SplitN(c.Error, "\n", 2)[0])
	}
	if c.Void != "" {
		r.void++
		return
	}
	if r.cycles == 0 || c.WritesPerSecond < r.writes {
		r.writes = c.WritesPerSecond
	}
	r.cycles++
	r.lists += c.ListsAtEtcd
	if c.ListSample != "" {
		r.list = c.ListSample
	}
	r.ready = max(r.ready, time.Duration(c.Ready*float64(time.Second)))
	if r.late == nil {
		r.late, r.catchUps = map[kind][]time.Duration{}, map[kind]catchUps{}
		r.worst, r.worstAt = map[kind]string{}, map[kind]time.Duration{}
	}
	for _, p := range c.Clients {
		k := kind(p.Client)
		r.late[k] = append(r.late[k], p.Late.all()...)
		if q := quantiles(p.Late.all()); q.Max > r.worstAt[k] {
			r.worst[k], r.worstAt[k] = fmt.Sprintf("%s, seed %d", p.Worst, c.Seed), q.Max
		}
		sum := r.catchUps[k]
		sum.add(p.CatchUps)
		r.catchUps[k] = sum
		if k == nativeClient {
			r.joins.add(p.JoinCatchUps)
		}
	}
}

// missed returns the targets that the fault missed, with known reasons. The sum of all faults has
// no target.
func (r *row) missed() (out []string) {
	f, ok := faultNamed(r.fault)
	if !ok {
		return nil
	}
	say := func(format string, args ...any) { out = append(out, r.fault+": "+fmt.Sprintf(format, args...)) }
	native := r.catchUps[nativeClient]
	if p99 := quantiles(r.late[nativeClient]).P99; f.Stall > 0 && p99 > f.Stall {
		say("native p99 of %v, target %v; the worst was %s", p99.Round(time.Millisecond), f.Stall, r.worst[nativeClient])
	}
	if r.lists > 0 && !f.Lists {
		say("%d lists upstream, such as %s", r.lists, shortened(r.list))
	}
	if n := native.Relists + r.joins.Relists; n > 0 && !f.Relists {
		say("%d relists by native clients", n)
	}
	const restart = 30 * time.Second
	if r.ready > restart {
		say("ready after %v, target %v", r.ready.Round(time.Second), restart)
	}
	if r.violations > 0 {
		say("%d violations", r.violations)
	}
	for _, e := range r.errors {
		say("a run ended early: %s", e)
	}
	return out
}

func shortened(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

func columns() []string {
	return []string{
		"fault", "cycles", "deliveries checked", "violations", "stall native p50/p99/max", "clientv3", "streams",
		"lists upstream", "relists native", "etcd API", "deltas", "resyncs", "joins: deltas/resyncs", "ready ≤", "writes/s ≥", "target",
	}
}

func (r *row) cells() []string {
	cycles := fmt.Sprint(r.cycles)
	if r.void > 0 {
		cycles += fmt.Sprintf(" (+%d void)", r.void)
	}
	target := "–"
	if f, ok := faultNamed(r.fault); ok && f.Stall > 0 {
		target = "≤ " + f.Stall.String()
	}
	if len(r.missed()) > 0 {
		target += " **missed**"
	}
	late := func(k kind) string { return quantiles(r.late[k]).String() }
	native := r.catchUps[nativeClient]
	return []string{
		r.fault, cycles, fmt.Sprint(r.events), fmt.Sprint(r.violations), late(nativeClient), late(etcdClient), late(etcdStream),
		fmt.Sprint(r.lists), fmt.Sprint(native.Relists), fmt.Sprint(r.catchUps[etcdClient].Relists + r.catchUps[etcdStream].Relists),
		fmt.Sprint(native.Deltas), fmt.Sprint(native.Resyncs), fmt.Sprintf("%d/%d", r.joins.Deltas, r.joins.Resyncs), r.ready.Round(100 * time.Millisecond).String(), fmt.Sprintf("%.0f", r.writes), target,
	}
}

// rows sums the cycles up by fault, in the order of the table, followed by the sum of all.
func (r *Report) rows() []*row {
	var out []*row
	total := &row{fault: "all"}
	order := FaultNames()
	for _, c := range r.Cycles {
		i := slices.IndexFunc(out, func(r *row) bool { return r.fault == c.Fault })
		if i < 0 {
			i = len(out)
			out = append(out, &row{fault: c.Fault})
		}
		out[i].add(c)
		total.add(c)
	}
	slices.SortStableFunc(out, func(a, b *row) int { return slices.Index(order, a.fault) - slices.Index(order, b.fault) })
	return append(out, total)
}

// Missed returns the missed targets by fault, with the known reasons for each.
func (r *Report) Missed() (out []string) {
	rows := r.rows()
	for _, row := range rows[:len(rows)-1] {
		out = append(out, row.missed()...)
	}
	return out
}

// Text writes the table for a terminal.
func (r *Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ToUpper(strings.Join(columns(), "\t")))
	for _, row := range r.rows() {
		fmt.Fprintln(t, strings.Join(row.cells(), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, line := range slices.Concat(r.Missed(), r.Violations()) {
		if _, err := fmt.Fprintln(w, "  "+line); err != nil {
			return err
		}
	}
	return nil
}

// Markdown writes the table for the published page.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(columns())
	b.WriteString("|---" + strings.Repeat("|--:", len(columns())-1) + "|\n")
	for _, row := range r.rows() {
		line(row.cells())
	}
	list := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n%s:\n\n", title)
		for _, l := range lines {
			fmt.Fprintf(&b, "- %s\n", l)
		}
	}
	list("Missed targets", r.Missed())
	list("Violations", r.Violations())
	var settings []string
	for _, c := range r.Cycles {
		if !slices.Contains(settings, c.Setting) {
			settings = append(settings, c.Setting)
		}
	}
	list("Settings", settings)
	_, err := io.WriteString(w, b.String())
	return err
}

// lines is the file in a report's directory with one cycle per line.
const lines = "cycles.jsonl"

// Append adds a cycle to the report in a directory, which it creates.
func Append(dir string, c Cycle) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, lines), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(c), f.Close())
}

// Read combines the reports in several directories and all directories below them.
func Read(dirs ...string) (Report, error) {
	var r Report
	for _, dir := range dirs {
		found := false
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() != lines {
				return err
			}
			found = true
			return r.read(path)
		})
		if err == nil && !found {
			err = fmt.Errorf("there is no %s in it", lines)
		}
		if err != nil {
			return r, fmt.Errorf("read the report in %s: %w", dir, err)
		}
	}
	return r, nil
}

func (r *Report) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	d := json.NewDecoder(bufio.NewReader(f))
	for {
		var c Cycle
		if err := d.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		r.Cycles = append(r.Cycles, c)
	}
}
