package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// The lines of a page that enclose the table of a run.
const (
	pageTable    = "<!-- results -->"
	pageTableTLS = "<!-- results with TLS -->"
	pageTableEnd = "<!-- end of results -->"
)

// replaceTable replaces the table of a page by the run's. It fails, and changes nothing, if the
// page lacks the lines that enclose that table.
func (r report) replaceTable(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin := pageTable
	if r.tls() {
		begin = pageTableTLS
	}
	before, rest, ok := strings.Cut(string(b), begin+"\n")
	if !ok {
		return fmt.Errorf("%s: the line %s is missing", path, begin)
	}
	_, after, ok := strings.Cut(rest, pageTableEnd)
	if !ok {
		return fmt.Errorf("%s: no line %s follows %s", path, pageTableEnd, begin)
	}
	page := before + begin + "\n" + r.pageTable() + pageTableEnd + after
	return os.WriteFile(path, []byte(page), 0o644)
}

// pageTable returns the table for a page: without the commands, with the ratio to etcd after each
// value, and without detailed figures.
func (r report) pageTable() string {
	var out strings.Builder
	fmt.Fprintf(&out, "| load | figure | %s |\n|---|---|%s\n", strings.Join(r.Sides, " | "), strings.Repeat("---:|", len(r.Sides)))
	load := ""
	for _, x := range r.rows() {
		if x.detail() {
			continue
		}
		name := ""
		if x.load != load {
			load, name = x.load, "`"+x.load+"`"
		}
		fmt.Fprintf(&out, "| %s | %s |", name, x.figure)
		for _, side := range r.Sides {
			cell := ""
			if value, ok := x.values[side]; ok {
				cell = x.unit.text(value)
				if ratio, ok := x.ratio(side); ok && side != sideEtcd {
					cell += fmt.Sprintf(" (%.2f)", ratio)
				}
			}
			fmt.Fprintf(&out, " %s |", cell)
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}

// detail reports whether a page leaves out the row: the highest latency quantiles, latencies of
// owners and replicas, and messages of one event.
func (x row) detail() bool {
	one := true
	for _, value := range x.values {
		one = one && x.unit.text(value) == "1"
	}
	return strings.HasPrefix(x.figure, "latency p99.9") || strings.Contains(x.figure, ", at the owner") || strings.Contains(x.figure, ", at replicas") ||
		x.figure == figureTogether && one
}

// tls reports whether clients used TLS.
func (r report) tls() bool { return slices.Contains(strings.Split(r.Setting, ", "), "TLS") }
