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
	alertFile     = "../../deploy/prometheus/shardwatch.yaml"
	alertTests    = "../../deploy/prometheus/tests/shardwatch.yaml"
	dashboardFile = "../../deploy/grafana/shardwatch.json"
	runbook       = "../../docs/runbooks/README.md"
)

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

func alerts(t *testing.T) (all []alertRule) {
	t.Helper()
	var rules alertRules
	if err := yaml.Unmarshal(read(t, alertFile), &rules); err != nil {
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
	labelName  = regexp.MustCompile(`\{[^}]*\}|by \([^)]*\)`)
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

// unknown returns the metrics of an expression that are not documented.
func unknown(expr string, known map[string]bool) (out []string) {
	names := metricName.FindAllString(labelName.ReplaceAllString(expr, ""), -1)
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

func TestAlertsAreAboutMetricsThatAreThere(t *testing.T) {
	known, book, tests := documented(t), string(read(t, runbook)), string(read(t, alertTests))
	seen := map[string]bool{}
	for _, a := range alerts(t) {
		if seen[a.Alert] || !strings.HasPrefix(a.Alert, "Shardwatch") {
			t.Errorf("%s: twice, or not ours by its name", a.Alert)
		}
		seen[a.Alert] = true
		if u := unknown(a.Expr, known); len(u) > 0 {
			t.Errorf("%s: %v: not in docs/metrics.md", a.Alert, u)
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
	for line := range strings.Lines(book) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "## Shardwatch"); ok && !seen["Shardwatch"+name] {
			t.Errorf("the runbook has Shardwatch%s, which is no alert", name)
		}
	}
}

// panel is what a dashboard's panel shows.
type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(read(t, dashboardFile), &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

func TestTheDashboardIsAboutMetricsThatAreThere(t *testing.T) {
	known := documented(t)
	at, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range panels(t) {
		if ids[p.ID] {
			t.Errorf("%s: another panel has number %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			if u := unknown(target.Expr, known); len(u) > 0 {
				t.Errorf("%s: %v: not in docs/metrics.md", p.Title, u)
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
	promtool(t, "check", "rules", alertFile)
	promtool(t, "test", "rules", alertTests)
}

// What the dashboard asks for is PromQL: as rules, promtool can tell.
func TestTheDashboardAsksForSomething(t *testing.T) {
	var rules alertRules
	rules.Groups = append(rules.Groups, struct {
		Name  string
		Rules []alertRule
	}{Name: "dashboard"})
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")
	for _, p := range panels(t) {
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
}
