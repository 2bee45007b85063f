package hostile

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Report has the measurements of a run.
type Report struct{ Rows []Row }

// Row is the cost of one attack, over all of its rounds.
type Row struct {
	Attack, API, Mode, Right string
	// Did counts the attacker's actions, from its report.
	Did report
	// Rest and Peak are the node's maximum memory before the first attack and from then on; Log is
	// the growth of its log. In bytes.
	Rest, Peak, Log int64
	// Before, During and Control are medians over the rounds, separately for each value. Control is
	// the crowd's delays while another process uses as much CPU time as the attacker did.
	Before, During, Control pain
	Probes, Failed          int
	Restarts                int
	// Drain is the time from SIGTERM to the node's end, in rows with a drain.
	Drain time.Duration
	// MaxMemory and MaxRatio are the run's settings; see [Config].
	MaxMemory int64
	MaxRatio  float64
	// Why explains the first failed probe or a restart.
	Why string
}

func (r *Row) add(did report) {
	if r.Did.Done == nil {
		r.Did = report{Done: map[string]int{}, Refused: map[string]int{}}
	}
	for what, n := range did.Done {
		r.Did.Done[what] += n
	}
	for why, n := range did.Refused {
		r.Did.Refused[why] += n
	}
	if did.Breach != "" {
		r.Did.Breach = did.Breach
	}
}

// Unsafe returns the exceeded bounds among those that hold on every machine: memory, probes,
// restarts, rights. An attacker without actions proves nothing.
func (r *Row) Unsafe() (out []string) {
	if r.Peak-r.Rest > r.MaxMemory {
		out = append(out, "memory")
	}
	if r.Failed > 0 {
		out = append(out, "probes")
	}
	if r.Restarts > 0 {
		out = append(out, "restart")
	}
	if r.Did.Breach != "" {
		out = append(out, "breach")
	}
	if r.Drain > MaxDrain {
		out = append(out, "drain")
	}
	if r.Attack != control && r.Did.empty() {
		out = append(out, "nothing was done")
	}
	return out
}

// Exceeded returns the exceeded bounds, including the crowd's delays.
func (r *Row) Exceeded() []string {
	out := r.Unsafe()
	if r.Attack == etcdControl || r.Attack == machineControl { // its delays are not the node's
		return out
	}
	slower := func(before, during time.Duration) bool { return float64(during) > r.MaxRatio*float64(before) }
	if slower(r.Before.Watch, r.During.Watch) {
		out = append(out, "watch p99")
	}
	if slower(r.Before.Read, r.During.Read) {
		out = append(out, "read p99")
	}
	return out
}

// Exceeded returns a sentence for each attack that exceeded a bound.
func (r Report) Exceeded() (out []string) {
	for _, row := range r.Rows {
		if over := row.Exceeded(); len(over) > 0 {
			text := fmt.Sprintf("%s, %s: %s", row.Attack, row.Mode, strings.Join(over, ", "))
			for _, why := range []string{row.Why, row.Did.Breach} {
				if why != "" {
					text += "; " + why
				}
			}
			out = append(out, text)
		}
	}
	return out
}

func (r *Row) line() string {
	drain := ""
	if r.Drain > 0 {
		drain = fmt.Sprintf("drained in %.1f s; ", r.Drain.Seconds())
	}
	return fmt.Sprintf("%s, %s: %s above %s, watches %s, reads %s, at etcd %s, samples %s, cores %s, %d of %d probes failed, %d restarts; %s; %s%s", r.Attack, r.Mode,
		mib(r.Peak-r.Rest), mib(r.Rest), r.delays(watchDelay), r.delays(readDelay), r.reference(), r.samples(),
		r.cores(), r.Failed, r.Probes, r.Restarts, r.Did, drain, verdict(r))
}

func verdict(r *Row) string {
	if over := r.Exceeded(); len(over) > 0 {
		return "EXCEEDS " + strings.Join(over, ", ")
	}
	return "ok"
}

func watchDelay(p pain) time.Duration { return p.Watch }
func readDelay(p pain) time.Duration  { return p.Read }

// delays formats a delay in the calm rounds, under the control, if any, and under attack.
func (r *Row) delays(of func(pain) time.Duration) string {
	control := ""
	if r.Control != (pain{}) {
		control = ms(of(r.Control)) + " → "
	}
	return ms(of(r.Before)) + " → " + control + ms(of(r.During))
}

// reference formats the delays at etcd itself in the calm rounds and under attack.
func (r *Row) reference() string {
	return fmt.Sprintf("%s → %s; %s → %s", ms(r.Before.EtcdWatch), ms(r.During.EtcdWatch), ms(r.Before.EtcdRead), ms(r.During.EtcdRead))
}

// samples formats the number of writes and reads behind a percentile of a calm round and of an
// attacked one.
func (r *Row) samples() string { return fmt.Sprintf("%d; %d", r.Before.Samples, r.During.Samples) }

// cores formats the CPU use of the node and of the attacker.
func (r *Row) cores() string {
	return fmt.Sprintf("%.2f → %.2f; %.2f", r.Before.Node, r.During.Node, r.During.Attacker)
}

func ms(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// columns returns the table's columns.
func columns() []string {
	return []string{"attack", "API", "right", "above rest", "watch p99, calm → control → attacked", "read p99, calm → control → attacked", "at etcd itself: watch; read p99, calm → attacked", "samples: calm; attacked", "cores: node, calm → attacked; attacker", "failed probes", "restarts", "within"}
}

func (r *Row) cells() []string {
	right := r.Right
	if r.Mode == secure {
		right += " (TLS)"
	}
	within := "yes"
	if over := r.Exceeded(); len(over) > 0 {
		within = "**" + strings.Join(over, ", ") + "**"
	}
	return []string{
		r.Attack, r.API, right, mib(r.Peak - r.Rest), r.delays(watchDelay), r.delays(readDelay), r.reference(), r.samples(),
		r.cores(), fmt.Sprintf("%d of %d", r.Failed, r.Probes), fmt.Sprint(r.Restarts), within,
	}
}

// Text prints the table for a terminal.
func (r Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns(), "\t"))
	for _, row := range r.Rows {
		fmt.Fprintln(t, strings.Join(row.cells(), "\t"))
	}
	return t.Flush()
}

// Markdown prints the table for a page.
func (r Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns(), " | "), strings.Repeat("---|", len(columns())))
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row.cells(), " | "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
