package manifests_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"
)

// The alerts are those of deploy/prometheus, which are tested there.
// UPDATE=1 go test -C test/manifests -run Rules writes them anew.
func TestRulesAreThoseOfPrometheus(t *testing.T) {
	const source, file = root + "/deploy/prometheus/shardwatch.yaml", root + "/deploy/k8s/components/prometheus/prometheusrule.yaml"
	const inChart = root + "/deploy/helm/shardwatch/files/rules.yaml" // a chart reads its own files only
	rules, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(rules, &want); err != nil || len(want.Groups) == 0 {
		t.Fatalf("%s: %d groups, %v", source, len(want.Groups), err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := errors.Join(os.WriteFile(file, rule(rules), 0o644), os.WriteFile(inChart, rules, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if chart, err := os.ReadFile(inChart); err != nil || !bytes.Equal(chart, rules) {
		t.Errorf("%s differs from %s (%v): UPDATE=1 go test -C test/manifests -run Rules", inChart, source, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode(strict(t), text)
	if err != nil {
		t.Fatal(err)
	}
	if got := of[*monitoring.PrometheusRule](objects); len(got) != 1 || !equality.Semantic.DeepEqual(got[0].Spec, want) {
		t.Errorf("%s is not what %s says: UPDATE=1 go test -C test/manifests -run Rules", file, source)
	}
}

// rule is a PrometheusRule with the rules of a file.
func rule(rules []byte) []byte {
	var b bytes.Buffer
	b.WriteString(`# The rules of deploy/prometheus/shardwatch.yaml, written by
# UPDATE=1 go test -C test/manifests -run Rules.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: shardwatch
spec:
`)
	for line := range bytes.Lines(rules) {
		if len(bytes.TrimSpace(line)) > 0 {
			b.WriteString("  ")
		}
		b.Write(line)
	}
	return b.Bytes()
}
