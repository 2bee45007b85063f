package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
)

// report is the result of a run. Measurements are in the order of their time.
type report struct {
	Setting      string            `json:"setting"`
	Sides        []string          `json:"sides"`
	Commands     map[string]string `json:"commands"` // by load: the command that measures it again
	Measurements []measurement     `json:"measurements"`
	Failures     []failure         `json:"failures,omitempty"`
}

func newReport(c *config) report {
	r := report{
		Setting: fmt.Sprintf("%s/%s, %d CPUs, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()),
		Sides:   c.sides, Commands: make(map[string]string),
	}
	if c.tls {
		r.Setting += ", TLS"
	}
	for _, l := range chosen(c) {
		r.Commands[l.name] = c.again(l.name)
	}
	return r
}

// together merges runs: the last result of each load counts.
func together(files []string) (report, error) {
	out := report{Commands: make(map[string]string)}
	for _, file := range files {
		var r report
		b, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		switch {
		case err != nil:
			return report{}, fmt.Errorf("%s: %w", file, err)
		case out.Setting != "" && r.Setting != out.Setting:
			return report{}, fmt.Errorf("%s was measured on %s, earlier runs on %s", file, r.Setting, out.Setting)
		}
		out.Setting = r.Setting
		out.Sides = slices.DeleteFunc(kinds(), func(s string) bool { return !slices.Contains(out.Sides, s) && !slices.Contains(r.Sides, s) })
		out.Measurements = slices.DeleteFunc(out.Measurements, func(m measurement) bool { return r.Commands[m.Load] != "" })
		out.Failures = slices.DeleteFunc(out.Failures, func(f failure) bool { return r.Commands[f.Load] != "" })
		maps.Copy(out.Commands, r.Commands)
		out.Measurements = append(out.Measurements, r.Measurements...)
		out.Failures = append(out.Failures, r.Failures...)
	}
	return out, nil
}

// copies has paths for parts of the report; an empty path is none.
type copies struct{ chart, page string }

// publish prints the table, and writes the report under a path without an extension, and its
// copies. An empty path is none.
func (r report) publish(stdout io.Writer, path string, also copies) error {
	r.table(stdout)
	var err error
	if path != "" {
		err = errors.Join(save(path+".json", r.json), save(path+".md", func(w io.Writer) error { r.table(w); return nil }), save(path+".svg", r.chart))
		fmt.Fprintf(stdout, "\nreport: %s.json %s.md %s.svg\n", path, path, path)
	}
	if also.chart != "" {
		err = errors.Join(err, save(also.chart, r.chart))
	}
	if also.page != "" {
		err = errors.Join(err, r.replaceTable(also.page))
	}
	return err
}

// row is a figure of a load on all sides that have it.
type row struct {
	load, figure string
	unit         unit
	values       map[string]float64 // by side
}

// rows returns all figures, load after load.
func (r report) rows() (rows []row) {
	last := -1 // the previous measurement's row
	for i, m := range r.Measurements {
		at := slices.IndexFunc(rows, func(x row) bool { return x.load == m.Load && x.figure == m.Figure })
		if at < 0 { // a row of only some sides keeps its place on these
			if at = len(rows); i > 0 && r.Measurements[i-1].Load == m.Load {
				at = last + 1
			}
			rows = slices.Insert(rows, at, row{m.Load, m.Figure, m.Unit, make(map[string]float64)})
		}
		rows[at].values[m.Side] = m.Value
		last = at
	}
	return rows
}

// ratio returns a side's figure divided by etcd's, if both are known.
func (x row) ratio(side string) (float64, bool) {
	a, ok1 := x.values[side]
	b, ok2 := x.values[sideEtcd]
	return a / b, ok1 && ok2 && a >= 0 && b > 0
}

// table prints a line for each figure of each load.
func (r report) table(out io.Writer) {
	fmt.Fprintf(out, "%s\n\n", r.Setting)
	head := []string{"load", "figure"}
	for _, s := range r.Sides {
		head = append(head, s)
		if s != sideEtcd && slices.Contains(r.Sides, sideEtcd) {
			head = append(head, "/etcd")
		}
	}
	lines := [][]string{append(head, "again")}
	for _, x := range r.rows() {
		line := []string{x.load, x.figure}
		for i, cell := range head[2:] {
			if cell == "/etcd" {
				ratio, ok := x.ratio(head[2+i-1])
				if cell = ""; ok {
					cell = fmt.Sprintf("%.2f", ratio)
				}
			} else if value, ok := x.values[cell]; ok {
				cell = x.unit.text(value)
			} else {
				cell = ""
			}
			line = append(line, cell)
		}
		lines = append(lines, append(line, "`"+r.Commands[x.load]+"`"))
	}
	writeTable(out, lines)
	for _, f := range r.Failures {
		fmt.Fprintf(out, "\nFAILED: %s on %s: %s\n", f.Load, f.Side, f.Why)
	}
}

// writeTable aligns the cells of a markdown table: the first two columns and the last contain text.
func writeTable(out io.Writer, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len([]rune(cell)), 2)
		}
	}
	text := func(i int) bool { return i < 2 || i == len(widths)-1 }
	for n, line := range lines {
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if text(i) {
				cell += pad
			} else {
				cell = pad + cell
			}
			fmt.Fprintf(out, "| %s ", cell)
		}
		fmt.Fprintln(out, "|")
		for i, w := range widths {
			if n > 0 {
				break
			}
			end := ":"
			if text(i) {
				end = "-"
			}
			fmt.Fprint(out, "|"+strings.Repeat("-", w+1)+end)
		}
		if n == 0 {
			fmt.Fprintln(out, "|")
		}
	}
}

func (r report) json(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// unit is the unit of a figure.
type unit string

const (
	unitTime  unit = "s"
	unitBytes unit = "B"
	unitRate  unit = "1/s"
	unitShare unit = "share" // of a whole
	unitCount unit = "1"
)

// text formats a value with three digits.
func (u unit) text(v float64) string {
	switch u {
	case unitTime:
		for _, x := range []struct {
			unit string
			size float64
		}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
			if math.Abs(v) >= x.size {
				return digits(v/x.size) + " " + x.unit
			}
		}
		return digits(v*1e9) + " ns"
	case unitBytes:
		for _, x := range []struct {
			unit string
			size float64
		}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
			if math.Abs(v) >= x.size {
				return digits(v/x.size) + " " + x.unit
			}
		}
		return digits(v) + " B"
	case unitRate:
		for _, x := range []struct {
			unit string
			size float64
		}{{"M/s", 1e6}, {"k/s", 1e3}} {
			if math.Abs(v) >= x.size {
				return digits(v/x.size) + " " + x.unit
			}
		}
		return digits(v) + " /s"
	case unitShare:
		return fmt.Sprintf("%.1f %%", v*100)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}

// digits formats a value with three digits, or all digits before the point.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || a == 0:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
