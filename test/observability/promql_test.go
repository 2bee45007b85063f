package observability_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	deploy   = "../../deploy/"
	runbook  = "../../docs/runbooks/README.md"
	kubeDocs = "../../docs/kubernetes.md"
)

// kind is a kind of nodes, and the files about it.
type kind struct {
	name, alerts, tests, dashboard, docs string
	// prefix begins the names of its alerts; documented returns its metrics.
	prefix     string
	documented func(t *testing.T) map[string]bool
	// jobs selects series of its nodes, where other nodes export the same metric.
	jobs string
}

// kinds are nodes before etcd, and those that serve Kubernetes' API.
func kinds() []kind {
	const kube = `".*shardwatch-kube(-.*)?"`
	return []kind{
		{
			name: "etcd", alerts: deploy + "prometheus/shardwatch.yaml", tests: deploy + "prometheus/tests/shardwatch.yaml",
			dashboard: deploy + "grafana/shardwatch.json", docs: golden, prefix: "Shardwatch", documented: documented, jobs: "job!~" + kube,
		},
		{
			name: "kube", alerts: deploy + "prometheus/shardwatch-kube.yaml", tests: deploy + "prometheus/tests/shardwatch-kube.yaml",
			dashboard: deploy + "grafana/shardwatch-kube.json", docs: kubeDocs, prefix: "ShardwatchKube", documented: documentedKube, jobs: "job=~" + kube,
		},
	}
}

// eachKind runs a test for each kind of nodes.
func eachKind(t *testing.T, test func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) { test(t, k) })
	}
}

// alertRules is a file of Prometheus' rules.
type alertRules struct {
	Groups []struct {
		Name  string
		Rules []alertRule
	}
}

type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T, file string) (all []alertRule) {
	t.Helper()
	var rules alertRules
	if err := yaml.Unmarshal(read(t, file), &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no alerts")
	}
	return all
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// foreign are metrics of other programs, of Go and of the process.
func foreign() []string {
	return []string{"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}
}

var (
	metricName = regexp.MustCompile(`\b(?:shardwatch|process|go|node|promhttp)_[a-z_]+\b|\bup\b`)
	ofMetric   = regexp.MustCompile("^\\| `([a-z_]+)` \\| ([a-z]+) \\|")
	labelName  = regexp.MustCompile(`\{[^}]*\}|(?:by|on) \([^)]*\)`)
	// With the labels of by or on, or something else if there are none.
	aggregation = regexp.MustCompile(`(?:\b(?:max|min|sum|count|avg|absent)\b(?:\s*by)?|\bon)\s*(?:\(([^)]*)\))?`)
	// docs/kubernetes.md has the types in the help of metrics, and points at metrics.md.
	ofKube   = regexp.MustCompile("(?m)^\\| `(shardwatch_kube_[a-z_]+)` \\|")
	alsoKube = regexp.MustCompile("`(shardwatch_[a-z]+_)…`")
)

// documented returns the metrics of docs/metrics.md, a histogram's by all names.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for line := range strings.Lines(string(read(t, golden))) {
		m := ofMetric.FindStringSubmatch(line)
		switch {
		case m == nil:
		case m[2] == "histogram":
			for _, end := range []string{"_bucket", "_sum", "_count"} {
				out[m[1]+end] = true
			}
		default:
			out[m[1]] = true
		}
	}
	return out
}

// documentedKube returns the metrics of docs/kubernetes.md, with those of docs/metrics.md that
// it says nodes export, too.
func documentedKube(t *testing.T) map[string]bool {
	t.Helper()
	text, out := string(read(t, kubeDocs)), map[string]bool{}
	for _, m := range ofKube.FindAllStringSubmatch(text, -1) {
		out[m[1]] = true
	}
	also := alsoKube.FindAllStringSubmatch(text, -1)
	for name := range documented(t) {
		if slices.ContainsFunc(also, func(m []string) bool { return strings.HasPrefix(name, m[1]) }) {
			out[name] = true
		}
	}
	return out
}

// metricsOf returns the metrics of an expression.
func metricsOf(expr string) []string {
	return metricName.FindAllString(labelName.ReplaceAllString(expr, ""), -1)
}

// unknown returns the metrics of an expression that are not documented.
func unknown(expr string, known map[string]bool) (out []string) {
	names := metricsOf(expr)
	for _, name := range names {
		if !known[name] && !slices.Contains(foreign(), name) {
			out = append(out, name)
		}
	}
	if len(names) == 0 {
		out = append(out, "no metric at all")
	}
	return out
}

func TestAlertsUseExistingMetrics(t *testing.T) {
	book, seen := string(read(t, runbook)), map[string]bool{}
	eachKind(t, func(t *testing.T, k kind) {
		known, tests := k.documented(t), string(read(t, k.tests))
		for _, a := range alerts(t, k.alerts) {
			if seen[a.Alert] || !strings.HasPrefix(a.Alert, k.prefix) {
				t.Errorf("%s: twice, or not ours by its name", a.Alert)
			}
			seen[a.Alert] = true
			if u := unknown(a.Expr, known); len(u) > 0 {
				t.Errorf("%s: %v: not in %s", a.Alert, u, k.docs)
			}
			if s := a.Labels["severity"]; s != "info" && s != "warning" && s != "critical" {
				t.Errorf("%s: severity %q", a.Alert, s)
			}
			if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
				t.Errorf("%s: no summary, or no description", a.Alert)
			}
			if !strings.HasSuffix(a.Annotations["runbook_url"], "/docs/runbooks/README.md#"+strings.ToLower(a.Alert)) || !strings.Contains(book, "\n## "+a.Alert+"\n") {
				t.Errorf("%s: no section in docs/runbooks/README.md, or no link to it", a.Alert)
			}
			if !strings.Contains(tests, "      - alertname: "+a.Alert+"\n") || !strings.Contains(tests, "{alertname: "+a.Alert+",") {
				t.Errorf("%s: not tested to fire, or not to keep quiet", a.Alert)
			}
		}
	})
	for line := range strings.Lines(book) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "## Shardwatch"); ok && !seen["Shardwatch"+name] {
			t.Errorf("the runbook has Shardwatch%s, which is no alert", name)
		}
	}
}

// Two clusters in one Prometheus are not compared with each other: alerts are about a node, or
// about the nodes of one job in one namespace.
func TestAlertsAreAboutOneCluster(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for _, a := range alerts(t, k.alerts) {
			for _, m := range aggregation.FindAllStringSubmatch(a.Expr, -1) {
				if labels := strings.Split(m[1], ", "); !slices.Contains(labels, "instance") && (!slices.Contains(labels, "namespace") || !slices.Contains(labels, "job")) {
					t.Errorf("%s: %s is about the nodes of all clusters", a.Alert, m[0])
				}
			}
		}
	})
}

// Metrics that nodes of both kinds export are taken of one kind in each file: by the job, or
// beside one that only this kind has.
func TestAlertsAreAboutOneKindOfNodes(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		others := map[string]bool{"up": true}
		for _, other := range kinds() {
			if other.name != k.name {
				for name := range other.documented(t) {
					others[name] = true
				}
			}
		}
		for _, a := range alerts(t, k.alerts) {
			names := metricsOf(a.Expr)
			own := func(name string) bool { return !others[name] && !slices.Contains(foreign(), name) }
			if slices.ContainsFunc(names, own) {
				continue
			}
			if n := strings.Count(a.Expr, k.jobs); n != len(names) {
				t.Errorf("%s: %d of %d metrics are of %s", a.Alert, n, len(names), k.jobs)
			}
		}
		for _, v := range dashboardOf(t, k.dashboard).Templating.List {
			if asked, ok := strings.CutPrefix(v.Query.Query, "label_values("); ok {
				if names := metricsOf(asked); len(names) != 1 || !k.documented(t)[names[0]] || others[names[0]] {
					t.Errorf("%s: the values of %s are those of %v, which not only these nodes export", k.dashboard, v.Name, names)
				}
			}
		}
	})
}

// panel is what a dashboard's panel shows.
type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr string }
}

// dashboard is a dashboard of Grafana's.
type dashboard struct {
	UID        string
	Panels     []panel
	Templating struct {
		List []struct {
			Name  string
			Query query
		}
	}
}

// query is the query of a variable, which is a text for data sources.
type query struct{ Query string }

func (q *query) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &q.Query) == nil {
		return nil
	}
	type plain query
	return json.Unmarshal(text, (*plain)(q))
}

func dashboardOf(t *testing.T, file string) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal(read(t, file), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTheDashboardUsesExistingMetrics(t *testing.T) {
	uids := map[string]bool{}
	eachKind(t, func(t *testing.T, k kind) {
		known, d := k.documented(t), dashboardOf(t, k.dashboard)
		if uids[d.UID] {
			t.Errorf("another dashboard is %s: one of them is not imported", d.UID)
		}
		uids[d.UID] = true
		at, ids := map[[2]int]string{}, map[int]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] {
				t.Errorf("%s: another panel has number %d", p.Title, p.ID)
			}
			ids[p.ID] = true
			if p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("%s shows nothing", p.Title)
			}
			for _, target := range p.Targets {
				if u := unknown(target.Expr, known); len(u) > 0 {
					t.Errorf("%s: %v: not in %s", p.Title, u, k.docs)
				}
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := at[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s is above %s, or beside the page", p.Title, other)
					}
					at[[2]int{x, y}] = p.Title
				}
			}
		}
		if len(ids) < 10 {
			t.Errorf("%d panels", len(ids))
		}
	})
}

// A rule that cannot fail holds nothing.
func TestAWrongNameIsNoticed(t *testing.T) {
	known := documented(t)
	for expr, want := range map[string]int{
		`max(shardwatch_node_ready{up="go_x"}) == 0 and up == 1`:           0,
		`sum by (shardwatch_x) (rate(shardwatch_nodes_ready[5m]))`:         1,
		`shardwatch_delivery_sent_seconds > process_cpu_seconds_total`:     1,
		`histogram_quantile(0.9, shardwatch_delivery_sent_seconds_bucket)`: 0,
		`1 + 1`: 1,
	} {
		if got := unknown(expr, known); len(got) != want {
			t.Errorf("%s: %v, want %d", expr, got, want)
		}
	}
}

// promtool runs Prometheus' own tool, which Debian's prometheus has.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not here: apt-get install prometheus")
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), tool, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		promtool(t, "check", "rules", k.alerts)
		promtool(t, "test", "rules", k.tests)
	})
}

// What the dashboard asks for is PromQL: as rules, promtool can tell.
func TestTheDashboardHasValidQueries(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		var rules alertRules
		rules.Groups = append(rules.Groups, struct {
			Name  string
			Rules []alertRule
		}{Name: "dashboard"})
		variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")
		for _, p := range dashboardOf(t, k.dashboard).Panels {
			for _, target := range p.Targets {
				rules.Groups[0].Rules = append(rules.Groups[0].Rules, alertRule{Alert: p.Title, Expr: variables.Replace(target.Expr)})
			}
		}
		text, err := yaml.Marshal(rules)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "dashboard.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		promtool(t, "check", "rules", file)
	})
}
