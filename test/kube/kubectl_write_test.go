package kube_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// own are the parts that differ in two objects with the same content.
var own = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`resourceVersion: "\d+"`), `resourceVersion: "V"`},
	{regexp.MustCompile(`\b10\.96\.0\.\d+`), "ADDRESS"},
	{regexp.MustCompile(`(LIVE|MERGED)-\d+`), "$1"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}`), "TIME"},
	{regexp.MustCompile(`kubectl-edit-\w+`), "FILE"},
	{regexp.MustCompile(`(?m)^[IWE]\d{4} [\d:.]+ +\d+ `), ""}, // of a line of its log
}

// TestKubectlWritesEqual runs the same commands in one namespace at the apiserver and in another
// one at a node, and reads the result after each write. Both print the same output except for the
// parts in own.
func TestKubectlWritesEqual(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	n := c.node(t, "x", []string{a.url}, c.proxy(t)...)
	direct, through := c.kubectl(t, a.url), c.kubectl(t, "https://"+n.kube)
	direct.space, through.space = "space-d", "space-t"
	direct.must(t, widget, "apply", "-f", "-")
	direct.must(t, "", "wait", "--for=condition=Established", "crd/widgets.example.com")
	objects := func(value string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: m, labels: {kind: test}}, data: {value: %q}}
---
{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, labels: {kind: test}}, spec: {color: %q}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, labels: {kind: test}}, spec: {replicas: 1, selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}}, spec: {containers: [{name: c, image: %q}]}}}}
`, value, value, value)
	}
	const all = "get configmap/m widget/w deployment/d -o yaml --ignore-not-found"
	for _, step := range []struct {
		args, input string
		read        string // lists are answered by the node, gets by the apiserver; "": all
	}{
		{"create namespace NAMESPACE", "", "get namespace NAMESPACE -o yaml"},
		{"apply -f -", objects("one"), ""},
		{"apply -f -", objects("one"), ""},
		{"diff -f -", objects("two"), ""},
		{"apply -f -", objects("two"), ""},
		{"apply --server-side --field-manager=other -f -", objects("mine"), ""}, // conflicts
		{"apply --server-side --force-conflicts --field-manager=other -f -", objects("two"), ""},
		{"apply --dry-run=server -f -", objects("dry"), ""},
		{"apply --prune -l kind=test --prune-allowlist=core/v1/ConfigMap --prune-allowlist=example.com/v1/Widget -f -", strings.Split(objects("two"), "---")[0], ""},
		{"apply -f -", objects("two"), ""},
		{"edit configmap m", "", ""},
		{"patch configmap m --type=merge -p {\"data\":{\"b\":\"c\"}}", "", ""},
		{"patch deployment d --type=strategic -p {\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"c\",\"tty\":true}]}}}}", "", ""},
		{"patch widget w --type=json -p [{\"op\":\"replace\",\"path\":\"/spec/color\",\"value\":\"green\"}]", "", "get widgets -o yaml --field-selector=spec.color=green"},
		{"patch widget w --type=json -p [{\"op\":\"test\",\"path\":\"/spec/color\",\"value\":\"red\"}]", "", ""},
		{"label configmap m a=b", "", "get configmaps -o yaml -l a=b"},
		{"label configmap m a=c", "", "get configmaps -o name -l a=b"}, // refused without --overwrite
		{"label configmap m a-", "", "get configmaps -o name -l a=b"},
		{"annotate deployment d note=1", "", ""},
		{"scale deployment d --replicas=3", "", ""},
		{"scale deployment d --replicas=4 --current-replicas=7", "", ""},
		{"set image deployment/d c=other", "", ""},
		{"rollout restart deployment/d", "", ""},
		{"rollout pause deployment/d", "", ""},
		{"rollout undo deployment/d", "", ""}, // no controller has made replica sets
		{"create configmap n --from-literal=a=b", "", "get configmaps -o yaml"},
		{"create configmap n --from-literal=a=b", "", ""},
		{"replace -f -", `{apiVersion: v1, kind: ConfigMap, metadata: {name: n}, data: {a: c}}`, ""},
		{"create -f -", `{apiVersion: v1, kind: ConfigMap, metadata: {name: o}, wrong: 1}`, ""},
		{"create job j --image=i", "", "get jobs -o jsonpath={.items[*].spec.completions}"}, // its labels have its UID
		{"create serviceaccount s", "", "get serviceaccounts -o yaml"},
		{"run p --image=i", "", "get pods -o yaml"},
		{"expose deployment d --port=80", "", "get services -o yaml"},
		{"delete pod p --grace-period=0 --force", "", "get pods -o name"},
		{"delete configmap n --wait", "", "get configmaps -o name"},
		{"delete configmap n", "", ""},
		{"delete configmaps,widgets,deployments -l kind=test", "", "get configmaps,widgets,deployments -o name"},
		{"delete job j", "", "get jobs -o name"},
		{"create node NAMESPACE", "", ""},
	} {
		var answers []string
		for _, k := range []*kubectl{through, direct} {
			var answer string
			for _, command := range []string{step.args, step.read} {
				if command == "" {
					command = all
				}
				args := append([]string{"-n", k.space}, strings.Fields(strings.ReplaceAll(command, "NAMESPACE", k.space))...)
				answer += k.run(t, step.input, args...) + "\n"
			}
			for _, o := range own {
				answer = o.pattern.ReplaceAllString(answer, o.with)
			}
			answer = strings.ReplaceAll(strings.ReplaceAll(answer, k.space, "NAMESPACE"), k.home, "HOME")
			answers = append(answers, strings.ReplaceAll(answer, a.url, through.url))
		}
		if got, want := answers[0], answers[1]; got != want {
			t.Errorf("kubectl %s\ngot  %s\nwant %s", step.args, around(got, want), around(want, got))
		}
	}
}
