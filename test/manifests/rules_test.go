package manifests_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// ruleFiles are the alerts of deploy/prometheus, which are tested there, with the names and files of
// the PrometheusRules that have them, and a file of the chart: it reads its own files only.
func ruleFiles() []ruleFile {
	const prometheus, k8s = root + "/deploy/prometheus/", root + "/deploy/k8s/"
	return []ruleFile{
		{
			name: "shardwatch", source: prometheus + "shardwatch.yaml", file: k8s + "components/prometheus/prometheusrule.yaml",
			inChart: root + "/deploy/helm/shardwatch/files/rules.yaml",
		},
		{name: "shardwatch-kube", source: prometheus + "shardwatch-kube.yaml", file: k8s + "overlays/kube/prometheusrule.yaml"},
	}
}

type ruleFile struct{ name, source, file, inChart string }

// UPDATE=1 go test -C test/manifests -run Rules writes them anew.
func TestRulesAreThoseOfPrometheus(t *testing.T) {
	for _, r := range ruleFiles() {
		t.Run(r.name, r.test)
	}
}

func (r ruleFile) test(t *testing.T) {
	rules, err := os.ReadFile(r.source)
	if err != nil {
		t.Fatal(err)
	}
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(rules, &want); err != nil || len(want.Groups) == 0 {
		t.Fatalf("%s: %d groups, %v", r.source, len(want.Groups), err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(r.file, r.object(rules), 0o644); err != nil {
			t.Fatal(err)
		}
		if r.inChart != "" {
			if err := os.WriteFile(r.inChart, rules, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r.inChart != "" {
		if chart, err := os.ReadFile(r.inChart); err != nil || !bytes.Equal(chart, rules) {
			t.Errorf("%s differs from %s (%v): UPDATE=1 go test -C test/manifests -run Rules", r.inChart, r.source, err)
		}
	}
	text, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode(strict(t), text)
	if err != nil {
		t.Fatal(err)
	}
	if got := of[*monitoring.PrometheusRule](objects); len(got) != 1 || got[0].Name != r.name || !equality.Semantic.DeepEqual(got[0].Spec, want) {
		t.Errorf("%s is not what %s says: UPDATE=1 go test -C test/manifests -run Rules", r.file, r.source)
	}
}

// object is a PrometheusRule with the rules of a file.
func (r ruleFile) object(rules []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# The rules of deploy/prometheus/%s, written by
# UPDATE=1 go test -C test/manifests -run Rules.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: %s
spec:
`, filepath.Base(r.source), r.name)
	for line := range bytes.Lines(rules) {
		if len(bytes.TrimSpace(line)) > 0 {
			b.WriteString("  ")
		}
		b.Write(line)
	}
	return b.Bytes()
}

// Each overlay with a ServiceMonitor has the rules of its nodes and no others, and these find the nodes
// by their job.
func TestRulesFindTheirNodes(t *testing.T) {
	each(t, rulesFindNodes)
}

func rulesFindNodes(t *testing.T, objects []runtime.Object) {
	t.Helper()
	monitors, rules := of[*monitoring.ServiceMonitor](objects), of[*monitoring.PrometheusRule](objects)
	if len(monitors) != len(rules) {
		t.Fatalf("%d ServiceMonitors, %d PrometheusRules", len(monitors), len(rules))
	}
	for i, r := range rules {
		job, found := jobOf(t, objects, monitors[i]), 0
		for _, g := range r.Spec.Groups {
			for _, rule := range g.Rules {
				for _, m := range ofJob.FindAllStringSubmatch(rule.Expr.String(), -1) {
					found++
					if regexp.MustCompile("^(?:"+m[2]+")$").MatchString(job) != (m[1] == "=") {
						t.Errorf("%s: %s leaves out the job %s", rule.Alert, m[0], job)
					}
				}
			}
		}
		if found == 0 {
			t.Errorf("PrometheusRule %s finds no nodes by their job", r.Name)
		}
	}
}

// jobOf returns the job that the operator gives to the nodes: the value of the label that the
// ServiceMonitor names, or the name of the Service of the pods.
func jobOf(t *testing.T, objects []runtime.Object, m *monitoring.ServiceMonitor) string {
	t.Helper()
	for _, s := range of[*core.Service](objects) {
		selector, err := meta.LabelSelectorAsSelector(&m.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		if !selector.Matches(labels.Set(s.Labels)) {
			continue
		}
		if job := s.Labels[m.Spec.JobLabel]; job != "" {
			return job
		}
		return s.Name
	}
	t.Fatalf("ServiceMonitor %s selects no Service", m.Name)
	return ""
}

// ofJob finds selectors of jobs in an expression.
var ofJob = regexp.MustCompile(`job([=!])~"([^"]*)"`)
