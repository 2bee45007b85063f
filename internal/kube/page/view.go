package page

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/shardwatch/shardwatch/internal/kube/report"
)

// view is a report in the form of the page.
type view struct {
	report.Report
	Now, Up   string
	Level     string   // ok, warn or bad
	Verdict   []string // sentences
	Figures   []figure
	Resources []resource
	Members   []member
}

type figure struct{ What, Value, Note string }

type resource struct {
	report.Resource
	Level, Memory string
}

type member struct {
	report.Member
	Page string // its URL
	Self bool
}

// viewOf returns the view of a report. scheme is the scheme of the nodes' HTTP ports.
func viewOf(r *report.Report, now time.Time, scheme string) *view {
	v := &view{
		Report: *r, Now: now.UTC().Format("15:04:05 UTC"), Up: now.Sub(r.Started).Round(time.Second).String(),
	}
	v.judge()
	var objects, held, watches int64
	for _, x := range r.Resources {
		objects, held, watches = objects+x.Objects, held+x.Bytes, watches+x.Watches
		v.Resources = append(v.Resources, resource{x, levelOf(&x), size(x.Bytes)})
	}
	v.Figures = []figure{
		{"Resources", count(int64(len(r.Resources))), "each encoding counted"},
		{"Objects", count(objects), ""},
		{"Memory", size(held), "of objects and windows"},
		{"Watches", count(watches), "from memory"},
		{"Requests", count(r.Requests.Cached), "answered from memory"},
		{"Passed on", count(r.Requests.Passed), count(r.Requests.Failed) + " failed"},
	}
	for _, m := range r.Members {
		x := member{Member: m, Self: m.Name == r.Node}
		if m.HTTP != "" {
			x.Page = (&url.URL{Scheme: scheme, Host: m.HTTP, Path: "/"}).String()
		}
		v.Members = append(v.Members, x)
	}
	return v
}

// judge sets the level, and the sentences about problems.
func (v *view) judge() {
	var failing, unloaded, loading, withdrawn, avoided int
	for i := range v.Report.Resources {
		switch x := &v.Report.Resources[i]; {
		case x.State == report.Failing:
			failing++
		case x.State == report.Withdrawn:
			withdrawn++
		case x.State == report.Loading && x.Error != "":
			unloaded++
		case x.State == report.Loading:
			loading++
		}
	}
	for _, a := range v.Apiservers {
		if a.Avoided {
			avoided++
		}
	}
	v.Level = "ok"
	add := func(level, sentence string) {
		if v.Level != "bad" {
			v.Level = level
		}
		v.Verdict = append(v.Verdict, sentence)
	}
	if len(v.NotReady) > 0 {
		add("bad", "This node is not ready: "+strings.Join(v.NotReady, "; ")+".")
	}
	for _, x := range []struct {
		n    int
		what string
	}{
		{failing, "%d of %d resources are stale: no apiserver or node sends their changes at present."},
		{unloaded, "%d of %d resources cannot be loaded at present."},
		{withdrawn, "%d of %d resources are preloaded, but no apiserver serves them any more."},
	} {
		if x.n > 0 {
			add("warn", fmt.Sprintf(x.what, x.n, len(v.Report.Resources)))
		}
	}
	if avoided > 0 {
		add("warn", fmt.Sprintf("%d of %d apiservers have failed within the last minute, and not answered since.", avoided, len(v.Apiservers)))
	}
	switch {
	case len(v.Verdict) > 0:
	case loading > 0:
		v.Verdict = []string{fmt.Sprintf("This node is ready, and loads %d of %d resources.", loading, len(v.Report.Resources))}
	default:
		v.Verdict = []string{"This node is ready, and its resources are followed."}
	}
}

func levelOf(x *report.Resource) string {
	switch {
	case x.State == report.Ready:
		return "ok"
	case x.State == report.Loading && x.Error == "":
		return ""
	default:
		return "warn"
	}
}

// count returns a number with separators between thousands.
func count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// size returns a number of bytes.
func size(n int64) string {
	value, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for value >= 1024 && len(units) > 1 {
		value, units = value/1024, units[1:]
	}
	if value < 10 && units[0] != "B" {
		return fmt.Sprintf("%.1f %s", value, units[0])
	}
	return fmt.Sprintf("%.0f %s", value, units[0])
}
