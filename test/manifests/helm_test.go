package manifests_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const chart = root + "/deploy/helm/shardwatch"

// The chart makes the objects of kustomize: with its defaults those of the base, with
// each file of values those of the overlay of that name.
func TestHelmChartEqualsTheManifests(t *testing.T) {
	for _, test := range []struct {
		dir, namespace string
		values         []string
	}{
		{"base", "", nil},
		{"overlays/dev", "shardwatch-dev", []string{"dev"}},
		{"overlays/production", "shardwatch", []string{"production"}},
		{"overlays/kubeadm", "shardwatch", []string{"production", "kubeadm"}},
	} {
		t.Run(test.dir, func(t *testing.T) {
			built := string(buildAt(t, "deploy/k8s/"+test.dir))
			want := normal(t, strings.ReplaceAll(built, "image: shardwatch/cachenode\n", "image: shardwatch/cachenode:v0.1.0\n"))
			v := values(t, test.values...)
			if test.dir == "base" { // it does not say where etcd is, and the chart wants to know
				set(v, "settings", "etcd", "http://etcd:2379")
				set(v, "settings", "insecure", "all")
				data, _ := want["ConfigMap/shardwatch"]["data"].(map[string]any)
				data["CACHENODE_ETCD"], data["CACHENODE_INSECURE"] = "http://etcd:2379", "all"
			}
			text, err := render(t, "shardwatch", test.namespace, v)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := decode(strict(t), []byte(text)); err != nil {
				t.Error(err)
			}
			got := normal(t, text)
			delete(want, "Namespace/"+test.namespace) // Helm's --create-namespace
			for _, name := range slices.Sorted(maps.Keys(want)) {
				meta, _ := want[name]["metadata"].(map[string]any)
				if meta["labels"] == nil && meta["name"] != "etcd" { // kustomize labels what is in the base
					meta["labels"] = map[string]any{"app.kubernetes.io/name": "shardwatch"}
				}
				if diff := cmp.Diff(want[name], got[name]); diff != "" {
					t.Errorf("%s, kustomize's (-) and the chart's (+):\n%s", name, diff)
				}
				delete(got, name)
			}
			for name := range got {
				t.Errorf("kustomize makes no %s", name)
			}
		})
	}
}

// A second release in a namespace shares no name, label or certificate with the first.
func TestTwoReleasesOfTheChartAreApart(t *testing.T) {
	v := values(t, "production")
	set(v, "etcdTLS", "secretName", "")
	text, err := render(t, "other", "somewhere", v)
	if err != nil {
		t.Fatal(err)
	}
	// The image, the policy's identities, their certificates and Prometheus' rules say the product's name.
	about := regexp.MustCompile(`image:|cn:shardwatch|commonName: shardwatch-(admin|metrics)$|/shardwatch|shardwatch_|Shardwatch|shardwatch-(clients|metrics): "true"|^\s*#|- name: shardwatch$|summary|description|job`)
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, "shardwatch") && !about.MatchString(line) {
			t.Errorf("release other: %s", line)
		}
	}
}

// A release of any name has the certificates that the shipped policy names, from its own authority,
// and the alerts find its nodes.
func TestAReleaseOfAnotherNameAdmitsOperatorsAndAlerts(t *testing.T) {
	for _, release := range []string{"other", "kube", "my-shardwatch"} {
		v := values(t, "production")
		text, err := render(t, release, "somewhere", v)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := decode(strict(t), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`"cn:([^"]*)"`).FindAllStringSubmatch(pretty(t, v["policy"]), -1)
		if len(names) != 2 {
			t.Errorf("the policy names %v, want operators and Prometheus", names)
		}
		for _, name := range names {
			if !slices.ContainsFunc(of[*certmanager.Certificate](objects), func(c *certmanager.Certificate) bool {
				return c.Spec.CommonName == name[1] && c.Spec.IssuerRef.Name == release+"-clients"
			}) {
				t.Errorf("release %s: no certificate of its clients' authority is for %s", release, name[1])
			}
		}
		rulesFindNodes(t, objects)
	}
	for _, release := range []string{"shardwatch-kube", "my-shardwatch-kube-2"} {
		if _, err := render(t, release, "somewhere", values(t, "production")); err == nil || !strings.Contains(err.Error(), "without shardwatch-kube") {
			t.Errorf("release %s, whose nodes the alerts would not find: %v", release, err)
		}
	}
}

// A changed setting restarts the pods: kustomize changes the ConfigMap's name, the chart a
// checksum.
func TestAChangedSettingRollsThePodsOfTheChart(t *testing.T) {
	sum := func(window string) string {
		v := values(t, "dev")
		set(v, "settings", "window-bytes", window)
		text, err := render(t, "shardwatch", "x", v)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`checksum/config: (\w{64})`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no checksum in\n%s", text)
		}
		return found[1]
	}
	if a, b := sum("16MiB"), sum("32MiB"); a == b || a != sum("16MiB") {
		t.Errorf("checksums of two settings: %s and %s", a, b)
	}
}

// The chart refuses mistakes with a sentence that names the value.
func TestTheChartRefusesMistakes(t *testing.T) {
	for _, test := range []struct {
		name    string
		section string
		key     string
		value   any
		want    string
	}{
		{"no etcd", "settings", "etcd", []any{}, "settings.etcd is empty"},
		{"no certificates", "settings", "insecure", "", "set tls.enabled=true"},
		{"too few pods", "", "replicas", float64(2), "replicas=2 is less than settings.bootstrap-expect=3"},
		{"a short grace period", "", "terminationGracePeriodSeconds", float64(59), "terminationGracePeriodSeconds=59 is too short for settings.drain-timeout=45s"},
		{"a long drain", "settings", "drain-timeout", "1m1s", "set it to 76 or more"},
		{"a drain without a unit", "settings", "drain-timeout", float64(45), "missing unit"},
		{"a mount without a path", "", "extraVolumeMounts", []any{map[string]any{"name": "extra"}}, "mountPath"},
		{"a misspelt section", "", "tsl", map[string]any{}, "tsl"},
		{"a misspelt key", "tls", "enable", true, "enable"},
		{"a wrong type", "", "replicas", "three", "replicas"},
		{"a capital in a flag", "settings", "windowBytes", "1MiB", "windowBytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := values(t, "dev")
			if test.section == "" {
				v[test.key] = test.value
			} else {
				set(v, test.section, test.key, test.value)
			}
			if text, err := render(t, "shardwatch", "x", v); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q; made %d bytes", err, test.want, len(text))
			}
		})
	}
}

// Values that the overlays do not use reach their places.
func TestValuesOfTheChartReachThePods(t *testing.T) {
	v := values(t, "dev")
	for key, value := range map[string]any{
		"replicas": float64(5), "priorityClassName": "high", "nodeSelector": map[string]any{"disk": "ssd"},
		"tolerations":       []any{map[string]any{"key": "dedicated", "operator": "Exists"}},
		"affinity":          map[string]any{"nodeAffinity": map[string]any{}},
		"extraVolumes":      []any{map[string]any{"name": "extra", "secret": map[string]any{"secretName": "mine"}}},
		"extraVolumeMounts": []any{map[string]any{"name": "extra", "mountPath": "/etc/extra"}}, "terminationGracePeriodSeconds": float64(75),
		"podLabels": map[string]any{"team": "storage"}, "podAnnotations": map[string]any{"note": "here"},
	} {
		v[key] = value
	}
	set(v, "image", "digest", "sha256:"+strings.Repeat("a", 64))
	set(v, "image", "pullPolicy", "Always")
	set(v, "image", "pullSecrets", []any{"registry"})
	set(v, "storage", "className", "fast")
	set(v, "settings", "weight", float64(2))
	set(v, "settings", "drain-timeout", "1m") // the longest for a grace period of 75 s
	set(v, "settings", "http-tls-cert", "/etc/extra/tls.crt")
	set(v, "settings", "zone-less", nil)
	set(v, "networkPolicy", "enabled", false)
	text, err := render(t, "shardwatch", "x", v)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(strict(t), []byte(text)); err != nil {
		t.Error(err)
	}
	objects := normal(t, text)
	if objects["NetworkPolicy/shardwatch"] != nil {
		t.Error("there is a NetworkPolicy")
	}
	whole := pretty(t, objects["StatefulSet/shardwatch"]) + pretty(t, objects["ConfigMap/shardwatch"])
	for _, want := range []string{
		`"replicas": 5`, `"priorityClassName": "high"`, `"disk": "ssd"`, `"key": "dedicated"`, `"nodeAffinity"`, `"team": "storage"`,
		`"note": "here"`, `"shardwatch/cachenode@sha256:aaaa`, `"imagePullPolicy": "Always"`, `"name": "registry"`,
		`"storageClassName": "fast"`, `"CACHENODE_WEIGHT": "2"`,
		`"mountPath": "/etc/extra"`, `"secretName": "mine"`, `"terminationGracePeriodSeconds": 75`, `"scheme": "HTTPS"`, `"CACHENODE_HTTP_TLS_CERT": "/etc/extra/tls.crt"`,
	} {
		if !strings.Contains(whole, want) {
			t.Errorf("%s is not in\n%s", want, whole)
		}
	}
	if strings.Contains(whole, "ZONE_LESS") {
		t.Error("a setting without a value is set")
	}
}

// Helm's own linter has no complaint.
func TestHelmLint(t *testing.T) {
	got := lint.RunAll(chart, values(t, "dev"), "shardwatch")
	for _, m := range got.Messages {
		if m.Severity > 1 { // those of less severity are about an icon
			t.Error(m)
		}
	}
}

// values reads files of values, the later over the earlier.
func values(t *testing.T, names ...string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, name := range names {
		text, err := os.ReadFile(root + "/deploy/helm/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var some map[string]any
		if err := yaml.UnmarshalStrict(text, &some); err != nil {
			t.Fatal(err)
		}
		all = util.MergeTables(some, all)
	}
	return all
}

// set sets a value in a section.
func set(values map[string]any, section, key string, value any) {
	in, ok := values[section].(map[string]any)
	if !ok {
		in = map[string]any{}
		values[section] = in
	}
	in[key] = value
}

// render returns the documents that Helm makes of the chart, as `helm template` does.
func render(t *testing.T, release, namespace string, values map[string]any) (string, error) {
	t.Helper()
	loaded, err := loader.LoadDir(chart)
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(loaded, values, common.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(loaded, all)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(files[name]) != "" {
			fmt.Fprintf(&b, "---\n%s\n", files[name])
		}
	}
	return b.String(), nil
}

// normal returns objects by kind and name, without the differences between the two
// tools: the hash in a ConfigMap's name, the checksum in its place, fields with their
// defaults, the order of lists that are sets.
func normal(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	text = regexp.MustCompile(`\bshardwatch-[0-9a-z]{10}\b`).ReplaceAllStringFunc(text, func(name string) string {
		if strings.ContainsAny(name[len("shardwatch-"):], "0123456789") {
			return "shardwatch"
		}
		return name
	})
	objects := map[string]map[string]any{}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if o == nil {
			continue
		}
		meta, _ := o["metadata"].(map[string]any)
		name := fmt.Sprintf("%v/%v", o["kind"], meta["name"])
		if objects[name] != nil {
			t.Errorf("%s is made twice", name)
		}
		if meta["namespace"] == nil { // rendered for no namespace, to compare with the base
			delete(meta, "namespace")
		}
		plain(o)
		objects[name] = o
	}
	return objects
}

// plain takes out of an object the differences that mean nothing.
func plain(value any) {
	switch v := value.(type) {
	case map[string]any:
		if a, ok := v["annotations"].(map[string]any); ok {
			delete(a, "checksum/config")
			if len(a) == 0 {
				delete(v, "annotations")
			}
		}
		if v["scheme"] == "HTTP" {
			delete(v, "scheme")
		}
		if policy, ok := v["policy.yaml"].(string); ok { // comments and order
			var parsed map[string]any
			if yaml.Unmarshal([]byte(policy), &parsed) == nil {
				text, _ := json.Marshal(parsed)
				v["policy.yaml"] = string(text)
			}
		}
		for _, list := range []string{"volumes", "volumeMounts"} {
			if all, ok := v[list].([]any); ok {
				slices.SortFunc(all, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
		}
		for _, inner := range v {
			plain(inner)
		}
	case []any:
		for _, inner := range v {
			plain(inner)
		}
	}
}

func pretty(t *testing.T, value any) string {
	t.Helper()
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
