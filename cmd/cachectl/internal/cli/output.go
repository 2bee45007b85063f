package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/document"
)

// Table has lines of aligned columns.
type Table struct{ Rows [][]string }

// Row adds a line.
func (t *Table) Row(cells ...string) { t.Rows = append(t.Rows, cells) }

// Write prints the lines.
func (t *Table) Write(w io.Writer) error {
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, r := range t.Rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	_ = tw.Flush() // a strings.Builder never fails
	for line := range strings.Lines(out.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// BytesOf formats a number of bytes for people.
func BytesOf(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f := float64(n)
	for _, unit := range []string{"KiB", "MiB", "GiB"} {
		if f /= 1024; f < 1024 {
			return fmt.Sprintf("%.1f %s", f, unit)
		}
	}
	return fmt.Sprintf("%.1f TiB", f/1024)
}

// TimeOf formats a duration for people: in two units, such as 1h5m, below a minute in seconds or milliseconds.
func TimeOf(d time.Duration) string {
	switch {
	case d >= 24*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d >= time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

// OrDash returns s, or a dash if s is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Yes returns yes or a dash.
func Yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

// Number formats n in decimal.
func Number(n int64) string { return strconv.FormatInt(n, 10) }

// Lines writes the lines that are not empty.
func Lines(w io.Writer, all ...string) error {
	for _, line := range all {
		if line == "" {
			continue
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// Boundary formats the start or end of a range for people.
func Boundary(key string) string {
	if key == "" {
		return "-"
	}
	return document.Text([]byte(key))
}

// Seconds returns s seconds as a duration.
func Seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
