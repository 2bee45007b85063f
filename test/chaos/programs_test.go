package chaos

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// programsTruth is a truth with a put of /p00/a at revisions 2 and 3, and its delete at 4.
func programsTruth(t *testing.T) *truth {
	t.Helper()
	tr := newTruth()
	item := func(rev kv.Revision, value string) check.Event {
		return check.Put(check.Item{Key: "/p00/a", Value: check.HashValue([]byte(value)), Create: 2, Mod: rev, Version: int64(rev) - 1})
	}
	for _, b := range []check.Batch{
		{Revision: 2, Events: []check.Event{item(2, `{"v":"x"}`)}},
		{Revision: 3, Events: []check.Event{item(3, `{"v":"y`)}},
		{Revision: 4, Events: []check.Event{check.Delete("/p00/a", 4)}},
	} {
		if err := tr.history().Append(b); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

// Each oracle accepts correct output of the program, and finds missing or wrong output. A line
// "start" is a start of the program.
func TestProgramsAreJudged(t *testing.T) {
	const (
		start = "start"
		at    = `"Cluster":"c","Lineage":1,"Revision":`

		none      = `{` + at + `1,"Kind":"state","Reset":true}`
		first     = `{` + at + `2,"Kind":"batch","Steps":[{"Key":"/p00/a","Value":"{\"v\":\"x\"}"}]}`
		second    = `{` + at + `3,"Kind":"batch","Steps":[{"Key":"/p00/a","Value":"{\"v\":\"y"}]}`
		third     = `{` + at + `4,"Kind":"batch","Steps":[{"Key":"/p00/a"}]}`
		delta     = `{` + at + `4,"Kind":"delta","From":2,"Steps":[{"Key":"/p00/a"}]}`
		late      = `{` + at + `4,"Kind":"delta","From":3,"Steps":[{"Key":"/p00/a"}]}`
		elsewhere = `{"Cluster":"c","Lineage":2,"Revision":4,"Kind":"batch"}`

		initial = `{` + at + `1,"Initial":true}`
		created = `{` + at + `2,"Events":[{"Key":"/p00/a","After":"{\"v\":\"x\"}"}]}`
		stale   = `{` + at + `3,"Events":[{"Key":"/p00/a","Before":"{\"v\":\"x\"}","After":"{\"v\":\"x\"}"}]}`
		changed = `{` + at + `3,"Events":[{"Key":"/p00/a","Before":"{\"v\":\"x\"}","After":"{\"v\":\"y"}]}`
		deleted = `{` + at + `4,"Events":[{"Key":"/p00/a","Before":"{\"v\":\"y"}]}`
		skipped = `{` + at + `4,"Resync":true,"Events":[{"Key":"/p00/a","Before":"{\"v\":\"x\"}"}]}`

		set     = `{"Key":"/p00/a","After":{"v":"x"}}`
		invalid = `{"Key":"/p00/a","Invalid":true,"Value":"{\"v\":\"y","Revision":3}`
		fine    = `{"Key":"/p00/a","Invalid":true,"Value":"{\"v\":\"y\"}","Revision":3}`
		unset   = `{"Key":"/p00/a","Before":{"v":"x"}}`
	)
	r := kv.Prefix("/p00/")
	oracles := map[string]func() oracle{
		"worker":      func() oracle { return &worker{copied: copied{r: r}} },
		"differences": func() oracle { return &differences{copied: copied{r: r}} },
		"settings":    func() oracle { return &settings{r: r} },
	}
	for _, c := range []struct {
		program, name string
		lines         []string
		wrong         string // part of the violation; empty: none
	}{
		{"worker", "all", []string{start, none, first, second, third}, ""},
		{"worker", "again after a restart", []string{start, none, first, start, first, second, start, second, third}, ""},
		{"worker", "a delta", []string{start, none, first, delta}, ""},
		{"worker", "an event is missing", []string{start, none, first, third}, "no line for [3]"},
		{"worker", "missing after a restart", []string{start, none, first, start, third}, "no line for [3]"},
		{"worker", "missing before a delta", []string{start, none, first, late}, "no line for [3]"},
		{"worker", "missing at the end", []string{start, none, first, second}, "no line for [4]"},
		{"worker", "again", []string{start, none, first, first}, "went back"},
		{"worker", "another value", []string{start, none, strings.Replace(first, "x", "z", 1), second, third}, "of revision 2"},
		{"worker", "another history", []string{start, none, first, second, third, elsewhere}, "without the state"},
		{"differences", "all", []string{start, initial, created, changed, deleted}, ""},
		{"differences", "merged", []string{start, initial, created, skipped}, ""},
		{"differences", "a value is stale", []string{start, initial, created, stale}, "at revision 3"},
		{"differences", "a line is missing", []string{start, initial, created, deleted}, "before"},
		{"differences", "the end is missing", []string{start, initial, created, changed}, "no line for [4]"},
		{"settings", "all", []string{start, set, invalid, unset}, ""},
		{"settings", "the delete is missing", []string{start, set, invalid}, "does not exist"},
		{"settings", "a good value is refused", []string{start, set, fine, unset}, "is a setting"},
		{"settings", "a line is missing", []string{start, unset}, "before"},
	} {
		t.Run(c.program+": "+c.name, func(t *testing.T) {
			p := &program{name: c.program, oracle: oracles[c.program]()}
			for _, line := range c.lines {
				if line == start {
					p.keep(nil)
				} else {
					p.keep([]byte(line))
				}
			}
			got := fmt.Sprint(p.judge(t.Context(), programsTruth(t), 4, time.Millisecond))
			if (c.wrong == "") != (got == "[]") || !strings.Contains(got, c.wrong) {
				t.Errorf("violations %s, want %q", got, c.wrong)
			}
		})
	}
}

// A value that cannot be decoded is missing if no line reports it.
func TestSettingsReportsInvalidValues(t *testing.T) {
	tr := newTruth()
	bad := check.Item{Key: "/p00/a", Value: check.HashValue([]byte("no JSON")), Create: 2, Mod: 2, Version: 1}
	if err := tr.history().Append(check.Batch{Revision: 2, Events: []check.Event{check.Put(bad)}}); err != nil {
		t.Fatal(err)
	}
	p := &program{name: "settings", oracle: &settings{r: kv.Prefix("/p00/")}}
	p.keep(nil)
	if got := p.judge(t.Context(), tr, 2, time.Millisecond); len(got) != 1 {
		t.Errorf("violations %v, want one", got)
	}
	p.keep([]byte(`{"Key":"/p00/a","Invalid":true,"Value":"no JSON","Revision":2}`))
	if got := p.judge(t.Context(), tr, 2, time.Millisecond); len(got) != 0 {
		t.Errorf("violations %v, want none", got)
	}
}

// The end of a program is a violation, whatever it has printed.
func TestProgramThatEndsIsFound(t *testing.T) {
	p := &program{name: "settings", oracle: &settings{r: kv.Prefix("/p00/")}, ended: errors.New("exit status 1")}
	p.keep(nil)
	if got := p.judge(t.Context(), newTruth(), 1, time.Millisecond); len(got) != 1 {
		t.Errorf("violations %v, want one", got)
	}
}
