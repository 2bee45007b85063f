package kube_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// kubectl is Kubernetes' program, with a separate configuration and caches.
type kubectl struct {
	bin, home string
	url       string
	space     string // its namespace, in a comparison
}

func (c *cluster) kubectl(t *testing.T, url string) *kubectl {
	t.Helper()
	k := &kubectl{bin: kubernetesProgram(t, "kubectl"), home: t.TempDir(), url: url}
	config := fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: %q, certificate-authority: %q}}], users: [{name: a, user: {token: %q}}]}`, url, filepath.Join(c.dir, "ca.pem"), c.token)
	if err := os.WriteFile(filepath.Join(k.home, "config"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.bin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(k.home, "config"), "HOME="+k.home, "KUBE_EDITOR=sed -i s/two/three/")
	return cmd
}

// run returns kubectl's output and its exit code.
func (k *kubectl) run(t *testing.T, input string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := k.command(ctx, args...)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &problems
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return fmt.Sprintf("%s\n%s\nexit %d", &out, &problems, cmd.ProcessState.ExitCode())
}

// must runs a command that has to succeed.
func (k *kubectl) must(t *testing.T, input string, args ...string) {
	t.Helper()
	if answer := k.run(t, input, args...); !strings.HasSuffix(answer, "\nexit 0") {
		t.Fatalf("kubectl %s: %s", strings.Join(args, " "), answer)
	}
}

// age is a column of a table or a part of a description that grows with time, and the following
// spaces.
var age = regexp.MustCompile(`(\b(\d+[dhms])+|AGE)( +|\b)`)

// kubectlObjects are the objects that the commands of TestKubectlReadsEqual read.
func kubectlObjects() string {
	all := []string{
		`{apiVersion: v1, kind: Namespace, metadata: {name: shop}}`,
		`{apiVersion: v1, kind: Node, metadata: {name: node-a, labels: {zone: z}}, spec: {unschedulable: true}}`,
		`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{port: 80}]}}`,
		`{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: shop}, stringData: {a: b}}`,
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}}}`,
		`{apiVersion: example.com/v1, kind: Widget, metadata: {name: red, namespace: shop}, spec: {color: red}}`,
		`{apiVersion: example.com/v1, kind: Widget, metadata: {name: blue, namespace: shop}, spec: {color: blue, size: 3}}`,
		`{apiVersion: v1, kind: Event, metadata: {name: e, namespace: shop}, involvedObject: {kind: Pod, name: p-0, namespace: shop, apiVersion: v1}, reason: Happened, message: "it <happened>", type: Normal}`,
	}
	for i := range 11 {
		all = append(all, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: m-%d, namespace: shop, labels: {parity: "%d"}, annotations: {note: "a <b> & \"c\" \\ ü \u2028"}}, data: {value: "%d"}}`, i, i%2, i))
	}
	for i := range 4 {
		node := []string{"", ", nodeName: node-a"}[i%2]
		all = append(all, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: p-%d, namespace: shop, labels: {app: web}}, spec: {containers: [{name: c, image: i}]%s}}`, i, node))
	}
	return strings.Join(all, "\n---\n")
}

// TestKubectlReadsEqual compares kubectl's output at a node with its output at the apiserver, byte
// by byte except for ages: tables, documents, chunks, selectors, descriptions, custom resources,
// discovery, and failures. It runs without a kubelet, so that logs, exec, attach and port-forward
// of both end with the apiserver's refusal.
func TestKubectlReadsEqual(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t, "--requestheader-uid-headers=X-Remote-Uid") // for auth whoami
	n := c.node(t, "x", []string{a.url}, c.proxy(t)...)
	direct, through := c.kubectl(t, a.url), c.kubectl(t, "https://"+n.kube)
	direct.must(t, widget, "apply", "-f", "-")
	direct.must(t, "", "wait", "--for=condition=Established", "crd/widgets.example.com")
	direct.must(t, kubectlObjects(), "apply", "-f", "-")
	status := `{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`
	direct.must(t, "", "-n", "shop", "patch", "pod", "p-1", "--subresource=status", "-p", status)
	for _, test := range []struct {
		args string
		// memory: the node answers the list itself.
		memory bool
	}{
		{"get pods,configmaps,deployments,services,secrets,widgets", false},
		{"get pods -A", false},
		{"get pods -o wide --show-labels", false},
		{"get nodes -L zone", false},
		{"get configmaps --sort-by=.metadata.creationTimestamp", false},
		{"get configmaps --chunk-size=3", false},
		{"get configmaps -l parity=1", false},
		{"get pods --field-selector=spec.nodeName=node-a", false},
		{"get all", false},
		{"get configmap m-3 -o yaml", false},
		{"get configmap m-3 -o json", false},
		{"get secret key -o yaml", false},
		{"get deployment web -o yaml --show-managed-fields", false},
		{"get deployment web --subresource=scale -o json", false},
		{"get configmap missing", false},
		{"get nothings", false},
		{"get configmaps -l a=,,b", false},
		{"get pods --field-selector=spec.image=i -o json", false},
		{"get configmaps -o json", true},
		{"get configmaps -o yaml --show-managed-fields", true},
		{"get configmaps -o name", true},
		{"get configmaps -A -o name", true},
		{"get configmaps -o json --chunk-size=3", true},
		{"get configmaps -o json --chunk-size=0", true},
		{"get configmaps -o name -l parity=1", true},
		{"get configmaps -o name -l parity,parity!=1", true},
		{"get configmaps -o name -l parity=1 --chunk-size=2", true},
		{"get configmaps -o json --field-selector=metadata.name=m-3", true},
		{"get configmaps -o json -l parity=5", true},
		{"get configmaps -o custom-columns=NAME:.metadata.name,V:.metadata.resourceVersion", true},
		{"get configmaps -o jsonpath={.items[*].data.value}", true},
		{"get configmaps -o go-template={{range.items}}{{.metadata.name}},{{end}}", true},
		{"get pods -o json --field-selector=spec.nodeName=node-a,status.phase=Running", true},
		{"get pods -o name -A --field-selector=status.phase!=Running", true},
		{"get nodes -o json", true},
		{"get services,deployments,nodes -o yaml", true},
		{"get widgets -o json", true},
		{"get widgets.v2.example.com -o yaml", true},
		{"get widgets -o name --field-selector=spec.color=red", false},
		{"get widgets.v2.example.com -o name --field-selector=spec.size=7", false},
		{"get --raw /api/v1/namespaces/shop/pods/p-1", false},
		{"get --raw /version", false},
		{"describe configmaps", true},
		{"describe pods", true},
		{"describe node node-a", true},
		{"describe deployment web", true},
		{"describe service web", true},
		{"describe secret key", false},
		{"describe widget red", false},
		{"describe configmap missing", true},
		{"events", false},
		{"events --for pod/p-0", false},
		{"wait --for=condition=Ready pod/p-1 --timeout=1m", true},
		{"wait --for=condition=Ready pod -l app=web --timeout=5s", true},
		{"wait --for=jsonpath={.data.value}=3 configmap/m-3 --timeout=1m", true},
		{"wait --for=delete configmap/missing --timeout=1m", false},
		{"rollout history deployment/web", true},
		{"rollout status deployment/web --timeout=5s", true},
		{"api-resources", false},
		{"api-resources -o wide --sort-by=name", false},
		{"api-versions", false},
		{"explain pods.spec.containers", false},
		{"explain widgets.spec --recursive", false},
		{"explain deployment --output=plaintext-openapiv2", false},
		{"version -o yaml", false},
		{"cluster-info", true},
		{"auth whoami", false},
		{"auth can-i list pods", false},
		{"auth can-i --list", false},
		{"top pods", false},
		{"logs p-0", false},
		{"logs p-1", false},
		{"exec p-0 -- true", false},
		{"attach p-0", false},
		{"port-forward p-0 :80", false},
	} {
		t.Run(test.args, func(t *testing.T) {
			args := append([]string{"-n", "shop"}, strings.Fields(test.args)...)
			before := n.figures(t, `answer="cache"`)
			got, want := through.run(t, "", args...), direct.run(t, "", args...)
			for _, answer := range []*string{&got, &want} {
				*answer = age.ReplaceAllString(*answer, "AGE ")
			}
			want = strings.ReplaceAll(want, a.url, through.url)
			if got != want {
				t.Errorf("kubectl %s\ngot  %s\nwant %s", test.args, around(got, want), around(want, got))
			}
			if n.figures(t, `answer="cache"`) == before && test.memory {
				t.Errorf("kubectl %s: the node has answered no request itself", test.args)
			}
		})
	}
}

// figures returns the number of requests of Kubernetes' API at a node, with a label.
func (n *node) figures(t *testing.T, label string) float64 {
	t.Helper()
	text, err := n.get(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	return value(text, "shardwatch_kube_requests_total", label)
}

// running is a kubectl process, running or ended, and its lines.
type running struct {
	name  string
	ended chan struct{}

	mu       sync.Mutex
	lines    []string     // guarded by mu
	problems bytes.Buffer // read after its end
	code     int          // set at its end
}

// start starts a kubectl, which is killed when the test ends.
func (k *kubectl) start(ctx context.Context, t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{name: strings.Join(args, " "), ended: make(chan struct{})}
	cmd := k.command(ctx, args...)
	cmd.Stderr = &r.problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-r.ended
	})
	go func() {
		defer close(r.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.mu.Lock()
			r.lines = append(r.lines, lines.Text())
			r.mu.Unlock()
		}
		_ = cmd.Wait() // its exit code shows the error
		r.code = cmd.ProcessState.ExitCode()
	}()
	return r
}

func (r *running) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// events returns the printed events, "ADDED m-1", and the first other line.
func (r *running) events() (all []string, other string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		switch words := strings.Fields(line); {
		case len(words) > 1 && words[0] == "EVENT": // the head of a table
		case len(words) > 1:
			all = append(all, words[0]+" "+words[1])
		case other == "":
			other = line
		}
	}
	return all, other
}

// serial writes config maps one after the other: it creates, changes and deletes each.
type serial struct {
	set    *kubernetes.Clientset
	n      int
	events []string // expected events of a watch
}

func (s *serial) write(ctx context.Context, t *testing.T) {
	t.Helper()
	maps, name := s.set.CoreV1().ConfigMaps("default"), fmt.Sprintf("m-%d", s.n/3)
	var err error
	switch s.n % 3 {
	case 0:
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	case 1:
		_, err = maps.Patch(ctx, name, types.MergePatchType, []byte(`{"data": {"a": "b"}}`), metav1.PatchOptions{})
	case 2:
		err = maps.Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.events = append(s.events, []string{"ADDED", "MODIFIED", "DELETED"}[s.n%3]+" "+name)
	s.n++
}

// check compares a kubectl's output with the events: each, in order, from the first printed one. It
// returns an error if some are still missing and kubectl is running.
func (s *serial) check(t *testing.T, r *running) error {
	t.Helper()
	ended := r.hasEnded()
	printed, other := r.events()
	if len(printed) == 0 {
		return fmt.Errorf("%s has printed nothing", r.name)
	}
	from := slices.Index(s.events, printed[0])
	if from < 0 || from+len(printed) > len(s.events) || !slices.Equal(printed, s.events[from:from+len(printed)]) {
		t.Fatalf("%s has printed %q\nwhile the events are %q", r.name, printed, s.events)
	}
	if other != "" {
		t.Errorf("%s has printed %q", r.name, other)
	}
	if from+len(printed) < len(s.events) && !ended {
		return fmt.Errorf("%s has printed %d events of %d", r.name, len(printed), len(s.events)-from)
	}
	return nil
}

// TestKubectlWatches runs kubectl's watches at nodes that share their watches, while apiservers and
// nodes die. A watch that the nodes answer outlasts the apiservers; a table, which an apiserver
// answers, and each watch whose node dies ends with exit code 0 and without a message, like kubectl
// when its apiserver dies. Until then it prints each event, once and in order.
func TestKubectlWatches(t *testing.T) {
	c := newCluster(t)
	beside, a, b := c.apiserver(t), c.apiserver(t), c.apiserver(t)
	nodes := c.shared(t, []string{a.url, b.url}, []string{"x", "y", "z"}, "--kube-preload", "configmaps.v1/json")
	front := balancer(t, nodes...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := &serial{set: c.clients(t, beside.url, nil)}
	const documents = "--output=custom-columns=EVENT:.type,NAME:.object.metadata.name,VERSION:.object.metadata.resourceVersion"
	watch := func(args ...string) (all []*running) {
		for range nodes {
			k := c.kubectl(t, front)
			all = append(all, k.start(ctx, t, append([]string{"get", "configmaps", "--output-watch-events"}, args...)...))
		}
		return all
	}
	served := append(watch(documents, "--watch-only"), watch(documents, "--watch-only", "--field-selector=metadata.name!=kube-root-ca.crt")...)
	tables := watch("--watch-only")
	all := slices.Concat(served, tables)
	eventually(ctx, t, "each kubectl watches", func() error {
		s.write(ctx, t)
		for _, r := range all {
			if printed, _ := r.events(); len(printed) == 0 {
				return fmt.Errorf("%s has printed nothing", r.name)
			}
		}
		return nil
	})
	settled := func(after string, all ...*running) {
		t.Helper()
		for range 20 {
			s.write(ctx, t)
		}
		eventually(ctx, t, "all events "+after, func() error {
			for _, r := range all {
				if err := s.check(t, r); err != nil {
					return err
				}
			}
			return nil
		})
		count := map[bool]int{}
		for _, r := range all {
			count[r.hasEnded()]++
		}
		t.Logf("%s: %d events, %d run, %d have ended", after, len(s.events), count[false], count[true])
	}
	over := func(r *running) {
		t.Helper()
		select {
		case <-r.ended:
		case <-ctx.Done():
			t.Fatalf("%s has not ended", r.name)
		}
		if r.code != 0 || r.problems.Len() > 0 {
			t.Errorf("%s has ended with %d: %s", r.name, r.code, &r.problems)
		}
	}
	settled("at the start", all...)
	for _, x := range []*apiserver{a, b} {
		x.kill()
		settled("without an apiserver", all...)
		x.start(t)
		settled("with it again", all...)
	}
	for _, r := range served {
		if r.hasEnded() {
			t.Errorf("%s has ended with its apiserver: %d %s", r.name, r.code, &r.problems)
		}
	}
	for _, r := range tables {
		over(r)
	}
	for i, n := range nodes {
		n.kill()
		settled("without a node", served...)
		n.start(t)
		again := c.kubectl(t, front)
		again.must(t, "", "get", "configmaps")
		t.Logf("%d nodes have died", i+1)
	}
	for _, r := range served {
		over(r)
	}
}

// TestKubectlWaits runs kubectl wait at nodes that share their watches, while the nodes and the
// apiservers die one after the other. It uses informers, and so it continues: each command succeeds
// once its condition holds.
func TestKubectlWaits(t *testing.T) {
	c := newCluster(t)
	beside, a, b := c.apiserver(t), c.apiserver(t), c.apiserver(t)
	writer := c.clients(t, beside.url, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	labels := map[string]string{"app": "d"}
	containers := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	var err error
	create := func(_ any, failed error) {
		t.Helper()
		if err = failed; err != nil {
			t.Fatal(err)
		}
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Labels: labels} }
	create(writer.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta("m")}, metav1.CreateOptions{}))
	create(writer.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta("gone")}, metav1.CreateOptions{}))
	create(writer.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: meta("p"), Spec: containers}, metav1.CreateOptions{}))
	create(writer.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{ObjectMeta: meta("d"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: meta(""), Spec: containers},
	}}, metav1.CreateOptions{}))
	nodes := c.shared(t, []string{a.url, b.url}, []string{"x", "y", "z"}, "--kube-preload", "configmaps.v1/json,pods.v1/json,deployments.v1.apps/json")
	tap := c.tap(t, nodes...)
	var all []*running
	for _, command := range []string{
		"wait --for=jsonpath={.data.a}=b configmap/m --timeout=4m", "wait --for=delete configmap/gone --timeout=4m",
		"wait --for=condition=Ready pod/p --timeout=4m", "rollout status deployment/d --timeout=4m",
	} {
		for range nodes {
			all = append(all, c.kubectl(t, tap.url).start(ctx, t, strings.Fields(command)...))
		}
	}
	watches := func() (sum float64) {
		for _, n := range nodes {
			sum += max(0, n.figure(ctx, "shardwatch_kube_watches"))
		}
		return sum
	}
	wait := func(after string) {
		t.Helper()
		eventually(ctx, t, "all wait "+after, func() error {
			for _, r := range all {
				if r.hasEnded() {
					t.Fatalf("%s has ended %s: %d %v %s", r.name, after, r.code, r.lines, &r.problems)
				}
			}
			if open := watches(); open != float64(len(all)) {
				return fmt.Errorf("%v watches", open)
			}
			return nil
		})
	}
	wait("at the start")
	first := len(tap.listed())
	for _, n := range nodes {
		n.kill()
		wait("without " + n.name)
		n.start(t)
	}
	for _, x := range []*apiserver{a, b} {
		x.kill()
		wait("without an apiserver")
		x.start(t)
	}
	wait("at the end")
	if lists := tap.listed()[first:]; len(lists) > 0 {
		t.Errorf("kubectl has listed config maps again: %q", lists)
	}
	patch := func(data string) []byte { return []byte(data) }
	create(writer.CoreV1().ConfigMaps("default").Patch(ctx, "m", types.MergePatchType, patch(`{"data": {"a": "b"}}`), metav1.PatchOptions{}))
	create(nil, writer.CoreV1().ConfigMaps("default").Delete(ctx, "gone", metav1.DeleteOptions{}))
	create(writer.CoreV1().Pods("default").Patch(ctx, "p", types.StrategicMergePatchType, patch(`{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`), metav1.PatchOptions{}, "status"))
	create(writer.AppsV1().Deployments("default").Patch(ctx, "d", types.MergePatchType, patch(`{"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}}`), metav1.PatchOptions{}, "status"))
	for _, r := range all {
		select {
		case <-r.ended:
		case <-ctx.Done():
			t.Fatalf("%s has not ended", r.name)
		}
		problems := slices.DeleteFunc(strings.Split(r.problems.String(), "\n"), func(line string) bool {
			return line == "" || strings.Contains(line, "context canceled") // kubectl may report that it has ended its own watch
		})
		if r.code != 0 || len(problems) > 0 || len(r.lines) == 0 {
			t.Errorf("%s: %d %q %q", r.name, r.code, r.lines, problems)
		}
	}
}
