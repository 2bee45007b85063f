package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is a run. Rows have the loads in the order they ran.
type report struct {
	Setting string   `json:"setting"`
	Sides   []string `json:"sides"`
	Results []result `json:"results"`
}

func newReport(cfg config, results []result) report {
	return report{
		Setting: fmt.Sprintf("%s, %d CPUs, %s; values of %d bytes, pages of %d keys, events of %d bytes, %d watches on a stream",
			runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), runtime.Version(), cfg.valueSize, cfg.page, cfg.eventSize, cfg.perStream),
		Sides: cfg.sides, Results: results,
	}
}

// row is a load on both sides.
type row struct {
	load
	sides [2]*result
}

func (r report) rows() (rows []*row) {
	for i := range r.Results {
		one := &r.Results[i]
		at := slices.IndexFunc(rows, func(x *row) bool { return x.load == one.load })
		if at < 0 {
			at = len(rows)
			rows = append(rows, &row{load: one.load})
		}
		rows[at].sides[one.Side] = one
	}
	return slices.DeleteFunc(rows, func(x *row) bool { return x.sides[0] == nil || x.sides[1] == nil })
}

// table prints a line for each load.
func (r report) table(out io.Writer) {
	fmt.Fprintf(out, "%s\n\n", r.Setting)
	a, b := r.Sides[0], r.Sides[1]
	lines := [][]string{{"load", "CPU of " + a, "CPU of " + b, b + "/" + a, "etcd behind", "peak of " + a, "peak of " + b, b + "/" + a, "greatest node"}}
	for _, x := range r.rows() {
		l, t := x.sides[0], x.sides[1]
		lines = append(lines, []string{
			x.String(), short(l.CPU, l), short(t.CPU, t), ratio(perUnit(t.CPU, t), perUnit(l.CPU, l)), short(t.Behind, t),
			mib(l.peak()), mib(t.peak()), ratio(float64(t.peak()), float64(l.peak())), mib(slices.Max(t.Peaks)),
		})
	}
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for n, line := range lines {
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if i == 0 {
				fmt.Fprintf(out, "| %s%s |", cell, pad)
			} else {
				fmt.Fprintf(out, " %s%s |", pad, cell)
			}
		}
		fmt.Fprintln(out)
		if n == 0 {
			for i, w := range widths {
				if i == 0 {
					fmt.Fprint(out, "|"+strings.Repeat("-", w+2)+"|")
				} else {
					fmt.Fprint(out, strings.Repeat("-", w+1)+":|")
				}
			}
			fmt.Fprintln(out)
		}
	}
	fmt.Fprint(out, "\nCPU: of the servers, for each key listed, get, event delivered, put, watch opened or second idle.\n"+
		"Etcd behind: what the etcd behind the "+b+" used for it. Peak: VmHWM of all servers together.\n\n")
	for _, g := range r.goals() {
		fmt.Fprintln(out, g)
	}
}

// goals says of each goal whether it is reached.
func (r report) goals() (lines []string) {
	verdict := func(ok bool, format string, args ...any) {
		word := "reached"
		if !ok {
			word = "MISSED "
		}
		lines = append(lines, word+"  "+fmt.Sprintf(format, args...))
	}
	rows := r.rows()
	for _, x := range rows {
		if x.Kind != "list" && x.Kind != "watch" {
			continue
		}
		a, b := x.sides[0], x.sides[1]
		note := ratio(perUnit(b.CPU+b.Behind, b), perUnit(a.CPU, a)) + " with the etcd behind"
		if x.Kind == "watch" {
			none := written(rows, x.load)
			note += fmt.Sprintf("; %s of what is above the same writes unwatched",
				ratio(perUnit(b.CPU-none[1].CPU, b), perUnit(a.CPU-none[0].CPU, a)))
		}
		first, second := perUnit(a.CPU, a), perUnit(b.CPU, b)
		verdict(second < first, "less CPU, %v: %s (%s)", x.load, ratio(second, first), note)
	}
	for _, many := range rows {
		if many.Kind != "list" {
			continue
		}
		for _, one := range rows {
			if one.Kind != "list" || one.Keys != many.Keys || one.Mode != many.Mode || one.Clients != 1 || many.Clients < 50 {
				continue
			}
			m, o := many.sides[1].peak(), one.sides[1].peak()
			if many.OneNode { // of the node that has them all
				m, o = many.sides[1].Peaks[0], one.sides[1].Peaks[0]
			}
			verdict(float64(m) <= 1.5*float64(o), "at most 1.5 times the memory of one, %v: %s", many.load, ratio(float64(m), float64(o)))
		}
	}
	return lines
}

// written is what the writes for watches cost the sides while nobody was
// watching.
func written(rows []*row, watch load) [2]measured {
	for _, x := range rows {
		if x.Kind == "write" && x.Keys == watch.Keys && x.Rate == watch.Rate {
			return [2]measured{x.sides[0].measured, x.sides[1].measured}
		}
	}
	return [2]measured{}
}

// perUnit is nanoseconds for each key listed, get, event and so on.
func perUnit(d time.Duration, r *result) float64 { return float64(d) / float64(r.Units) }

func (r report) json(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func mib(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

func ratio(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

// short is the time for one unit, with three digits.
func short(d time.Duration, r *result) string {
	switch ns := perUnit(d, r); {
	case ns < 1e3:
		return fmt.Sprintf("%.0f ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.2f µs", ns/1e3)
	default:
		return fmt.Sprintf("%.2f ms", ns/1e6)
	}
}
