package manifests_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	admission "k8s.io/pod-security-admission/api"
	checks "k8s.io/pod-security-admission/policy"
)

// A schema that takes anything shows nothing.
func TestAMisspeltFieldIsRefused(t *testing.T) {
	good := string(build(t, "production"))
	d := strict(t)
	if _, err := decode(d, []byte(good)); err != nil {
		t.Fatal(err)
	}
	for right, wrong := range map[string]string{
		"terminationGracePeriodSeconds":             "terminationGracePeriodSecond",
		"readinessProbe":                            "readynessProbe",
		"unhealthyPodEvictionPolicy":                "unhealthyPodsEvictionPolicy",
		"dnsNames":                                  "dnsname",
		"interval: 15s":                             "interval: 15s\n    intervall: 15s",
		"kind: ServiceMonitor":                      "kind: ServiceMonitors",
		"minReadySeconds: 15":                       "minReadySeconds: fifteen",
		"apiVersion: policy/v1":                     "apiVersion: policy/v1beta7",
		"publishNotReadyAddresses: true":            "publishNotReadyAddresses: true\n  publishNotReadyAddresses: true",
		"automountServiceAccountToken: false\nkind": "automountToken: false\nkind",
	} {
		if !strings.Contains(good, right) {
			t.Errorf("there is no %q to misspell", right)
		}
		if _, err := decode(d, []byte(strings.Replace(good, right, wrong, 1))); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
}

// Every pod passes the admission of namespaces that enforce "restricted", as
// these do.
func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := checks.NewEvaluator(checks.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := admission.LevelVersion{Level: admission.LevelRestricted, Version: admission.LatestVersion()}
	each(t, func(t *testing.T, objects []runtime.Object) {
		for _, s := range of[*apps.StatefulSet](objects) {
			pod := s.Spec.Template
			if verdict := checks.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)); !verdict.Allowed {
				t.Errorf("%s: %s: %s", s.Name, verdict.ForbiddenReason(), verdict.ForbiddenDetail())
			}
			// A node that serves Kubernetes' API reaches the apiservers with its token.
			if token := pod.Spec.AutomountServiceAccountToken; token == nil || *token != (servesKube(t, objects) && s.Name == "shardwatch-kube") {
				t.Errorf("%s: automountServiceAccountToken is %v", s.Name, token)
			}
			for _, c := range pod.Spec.Containers {
				if ro := c.SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
					t.Errorf("%s: container %s may write to its root", s.Name, c.Name)
				}
			}
		}
		for _, n := range of[*core.Namespace](objects) {
			if n.Labels[admission.EnforceLevelLabel] != string(admission.LevelRestricted) {
				t.Errorf("namespace %s enforces %q", n.Name, n.Labels[admission.EnforceLevelLabel])
			}
		}
	})
}

// What objects call each other by is there: selectors select the pods, ports are
// the containers', and whatever is mounted or read exists.
func TestReferencesResolve(t *testing.T) {
	each(t, func(t *testing.T, objects []runtime.Object) {
		nodes := shardwatch(t, objects)
		pod := nodes.Spec.Template
		for _, s := range of[*core.Service](objects) {
			if s.Name == "etcd" {
				continue
			}
			if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
				t.Errorf("Service %s selects %v, pods have %v", s.Name, s.Spec.Selector, pod.Labels)
			}
			for _, p := range s.Spec.Ports {
				knownPort(t, &pod.Spec, "Service "+s.Name, p.TargetPort)
			}
		}
		for _, p := range of[*policy.PodDisruptionBudget](objects) {
			selects(t, "PodDisruptionBudget "+p.Name, p.Spec.Selector, pod.Labels)
		}
		for _, n := range of[*networking.NetworkPolicy](objects) {
			selects(t, "NetworkPolicy "+n.Name, &n.Spec.PodSelector, pod.Labels)
			for _, rule := range n.Spec.Ingress {
				for _, p := range rule.Ports {
					knownPort(t, &pod.Spec, "NetworkPolicy "+n.Name, *p.Port)
				}
			}
		}
		for _, m := range of[*monitoring.ServiceMonitor](objects) {
			for _, s := range of[*core.Service](objects) {
				if s.Name == nodes.Spec.ServiceName {
					selects(t, "ServiceMonitor "+m.Name, &m.Spec.Selector, s.Labels)
				}
			}
		}
		for i := range pod.Spec.TopologySpreadConstraints {
			c := &pod.Spec.TopologySpreadConstraints[i]
			selects(t, "the spread over "+c.TopologyKey, c.LabelSelector, pod.Labels)
		}
		if !exists(of[*core.Service](objects), nodes.Spec.ServiceName) {
			t.Errorf("there is no Service %s, which serviceName says", nodes.Spec.ServiceName)
		}
		if !exists(of[*core.ServiceAccount](objects), pod.Spec.ServiceAccountName) {
			t.Errorf("there is no ServiceAccount %s", pod.Spec.ServiceAccountName)
		}
		secretsAreMade(t, objects, &pod.Spec)
		issuersExist(t, objects)
	})
}

// Only the overlay to try it has a port that is open. The others' ask for
// certificates, the HTTP port too, where probes come without one and Prometheus with
// one that it takes.
func TestPortsAreProtected(t *testing.T) {
	each(t, func(t *testing.T, objects []runtime.Object) {
		pod := &shardwatch(t, objects).Spec.Template.Spec
		settings := settings(t, objects, pod)
		open := strings.HasSuffix(t.Name(), "/dev")
		clients := "KUBE_" // with a token or a certificate, which the apiservers judge
		if !servesKube(t, objects) {
			clients = ""
			if (settings["CACHENODE_TLS_CLIENT_CA"] == "") != open {
				t.Errorf("CACHENODE_TLS_CLIENT_CA=%s", settings["CACHENODE_TLS_CLIENT_CA"])
			}
		}
		for _, name := range []string{
			clients + "TLS_CERT", clients + "TLS_KEY", "PEER_TLS_CERT", "PEER_TLS_KEY", "PEER_TLS_CA",
			"HTTP_TLS_CERT", "HTTP_TLS_KEY", "HTTP_TLS_CLIENT_CA", "GOSSIP_KEY_FILE",
		} {
			if (settings["CACHENODE_"+name] == "") != open {
				t.Errorf("CACHENODE_%s=%s", name, settings["CACHENODE_"+name])
			}
		}
		if (settings["CACHENODE_INSECURE"] != "") != open {
			t.Errorf("CACHENODE_INSECURE=%s", settings["CACHENODE_INSECURE"])
		}
		probesSpeakTLS(t, &pod.Containers[0], !open)
		onlyLabelledNamespacesReachMetrics(t, objects)
		for _, m := range of[*monitoring.ServiceMonitor](objects) {
			for _, e := range m.Spec.Endpoints {
				if e.Port != "http" || e.Path != "/metrics" || (e.Scheme.String() == "https") == open || (e.TLSConfig != nil) == open {
					t.Errorf("ServiceMonitor %s: %+v; the port speaks TLS: %t", m.Name, e, !open)
				} else if !open {
					prometheusIsLetIn(t, objects, pod, settings, e.TLSConfig)
				}
			}
		}
	})
}

// prometheusIsLetIn checks that Prometheus shows a certificate of the authority that
// the HTTP port asks for, and expects a name that is in the port's own.
func prometheusIsLetIn(t *testing.T, objects []runtime.Object, pod *core.PodSpec, settings map[string]string, c *monitoring.TLSConfig) {
	t.Helper()
	// made returns the Certificate that a Secret is made for.
	made := func(secret string) *certmanager.Certificate {
		for _, c := range of[*certmanager.Certificate](objects) {
			if c.Spec.SecretName == secret {
				return c
			}
		}
		t.Errorf("no object makes the Secret %q", secret)
		return &certmanager.Certificate{}
	}
	asked, own := made(secretOf(pod, settings["CACHENODE_HTTP_TLS_CLIENT_CA"])), made(secretOf(pod, settings["CACHENODE_HTTP_TLS_CERT"]))
	if c.ServerName == nil || !slices.Contains(own.Spec.DNSNames, *c.ServerName) {
		t.Errorf("Prometheus expects a name that is not in %v", own.Spec.DNSNames)
	}
	if c.CA.Secret == nil || c.Cert.Secret == nil || c.KeySecret == nil {
		t.Fatalf("Prometheus has no certificate, or no CA: %+v", c)
	}
	for key, s := range map[string]*core.SecretKeySelector{"ca.crt": c.CA.Secret, "tls.crt": c.Cert.Secret, "tls.key": c.KeySecret} {
		shown := made(s.Name)
		if s.Key != key || shown.Spec.IssuerRef != asked.Spec.IssuerRef || !slices.Contains(shown.Spec.Usages, certmanager.UsageClientAuth) {
			t.Errorf("Prometheus has %s of the Secret %s, the port wants %v", s.Key, s.Name, asked.Spec.IssuerRef)
		}
	}
}

// secretOf returns the Secret that a file of the pod's comes from.
func secretOf(pod *core.PodSpec, file string) string {
	for _, m := range pod.Containers[0].VolumeMounts {
		for _, v := range pod.Volumes {
			if v.Name == m.Name && v.Secret != nil && m.MountPath == path.Dir(file) {
				return v.Secret.SecretName
			}
		}
	}
	return ""
}

// onlyLabelledNamespacesReachMetrics checks that from other pods the HTTP port is reached by
// those of labelled namespaces alone.
func onlyLabelledNamespacesReachMetrics(t *testing.T, objects []runtime.Object) {
	t.Helper()
	rules := 0
	for _, n := range of[*networking.NetworkPolicy](objects) {
		for _, rule := range n.Spec.Ingress {
			if !slices.ContainsFunc(rule.Ports, func(p networking.NetworkPolicyPort) bool { return p.Port == nil || p.Port.StrVal == "http" }) && len(rule.Ports) > 0 {
				continue
			}
			rules++
			for _, from := range rule.From {
				if len(rule.Ports) != 1 || from.NamespaceSelector == nil || from.NamespaceSelector.MatchLabels["shardwatch-metrics"] != "true" {
					t.Errorf("NetworkPolicy %s: %+v", n.Name, rule)
				}
			}
		}
	}
	if rules != 1 {
		t.Errorf("%d rules are about the HTTP port", rules)
	}
}

// The Secrets that people make, by docs/install.md and docs/kubernetes.md; all others are cert-manager's.
var byHand = map[string]bool{"shardwatch-etcd": true, "shardwatch-gossip": true, "shardwatch-kube-proxy": true}

// Namespaces that a NetworkPolicy admits by a label do not have it at first: the guide of each overlay
// says how to set it. The guide of the overlay kube also names the operator whose CRDs it needs.
func TestGuidesSetTheLabelsOfNetworkPolicies(t *testing.T) {
	each(t, func(t *testing.T, objects []runtime.Object) {
		guide := "install.md"
		if servesKube(t, objects) {
			guide = "kubernetes.md"
		}
		text, err := os.ReadFile(root + "/docs/" + guide)
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		for _, n := range of[*networking.NetworkPolicy](objects) {
			for _, rule := range n.Spec.Ingress {
				for _, from := range rule.From {
					if from.NamespaceSelector == nil {
						continue
					}
					for label, value := range from.NamespaceSelector.MatchLabels {
						asked++
						if !regexp.MustCompile(`kubectl label namespace \S+ ` + label + "=" + value + `\b`).Match(text) {
							t.Errorf("NetworkPolicy %s admits namespaces with %s=%s, which docs/%s does not set", n.Name, label, value, guide)
						}
					}
				}
			}
		}
		if asked == 0 {
			t.Error("no NetworkPolicy admits a namespace by its label")
		}
		if monitors := of[*monitoring.ServiceMonitor](objects); len(monitors) > 0 && !strings.Contains(string(text), "https://prometheus-operator.dev") {
			t.Errorf("docs/%s does not name the operator of the ServiceMonitor", guide)
		}
	})
}

// The probes speak what the port speaks.
func probesSpeakTLS(t *testing.T, c *core.Container, tls bool) {
	t.Helper()
	for name, p := range map[string]*core.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil || (p.HTTPGet.Scheme == core.URISchemeHTTPS) != tls {
			t.Errorf("the %s probe: %+v; the port speaks TLS: %v", name, p, tls)
		}
	}
}

func secretsAreMade(t *testing.T, objects []runtime.Object, pod *core.PodSpec) {
	t.Helper()
	made := map[string]bool{}
	for _, c := range of[*certmanager.Certificate](objects) {
		made[c.Spec.SecretName] = true
	}
	for _, v := range pod.Volumes {
		if s := v.Secret; s != nil && !made[s.SecretName] && !byHand[s.SecretName] {
			t.Errorf("volume %s: no object makes the Secret %s", v.Name, s.SecretName)
		}
	}
	for _, i := range of[*certmanager.Issuer](objects) {
		if i.Spec.CA != nil && !made[i.Spec.CA.SecretName] {
			t.Errorf("Issuer %s: no object makes the Secret %s", i.Name, i.Spec.CA.SecretName)
		}
	}
}

func issuersExist(t *testing.T, objects []runtime.Object) {
	t.Helper()
	for _, c := range of[*certmanager.Certificate](objects) {
		if !exists(of[*certmanager.Issuer](objects), c.Spec.IssuerRef.Name) {
			t.Errorf("Certificate %s: there is no Issuer %s", c.Name, c.Spec.IssuerRef.Name)
		}
		for _, name := range c.Spec.DNSNames {
			if strings.HasSuffix(name, ".svc") && !strings.HasSuffix(name, "."+c.Namespace+".svc") {
				t.Errorf("Certificate %s: %s is not in the namespace %s", c.Name, name, c.Namespace)
			}
		}
	}
}

// A pod has time to drain, and none is waited for that waits for others.
func TestPodsMayDrainAndFoundACluster(t *testing.T) {
	each(t, func(t *testing.T, objects []runtime.Object) {
		nodes := shardwatch(t, objects)
		pod := &nodes.Spec.Template.Spec
		settings := settings(t, objects, pod)
		drain, err := time.ParseDuration(settings["CACHENODE_DRAIN_TIMEOUT"])
		if err != nil {
			t.Fatal(err)
		}
		// What follows a drain: memberlist's last probe, and the exit.
		const rest = 10 * time.Second
		sleep := time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
		if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < sleep+drain+rest {
			t.Errorf("terminationGracePeriodSeconds (%s) is below preStop (%s) + --drain-timeout (%s) + %s", grace, sleep, drain, rest)
		}
		if servesKube(t, objects) { // without voters
			return
		}
		voters, err := strconv.Atoi(settings["CACHENODE_BOOTSTRAP_EXPECT"])
		if err != nil || int(*nodes.Spec.Replicas) < voters {
			t.Errorf("%d replicas cannot found a cluster of %d voters: %v", *nodes.Spec.Replicas, voters, err)
		}
		if voters > 1 && nodes.Spec.PodManagementPolicy != apps.ParallelPodManagement {
			t.Errorf("podManagementPolicy is %q: the first pod would wait for others that are not started", nodes.Spec.PodManagementPolicy)
		}
		for _, p := range of[*policy.PodDisruptionBudget](objects) {
			if most := p.Spec.MaxUnavailable; most == nil || *most != intstr.FromInt32(1) {
				t.Errorf("the PodDisruptionBudget allows %v pods to be away", most)
			}
		}
		for _, s := range of[*core.Service](objects) {
			if s.Name == nodes.Spec.ServiceName && (!s.Spec.PublishNotReadyAddresses || s.Spec.ClusterIP != core.ClusterIPNone) {
				t.Errorf("Service %s does not publish the addresses of pods that are not ready", s.Name)
			}
		}
	})
}

// No node is throttled: a node that is stopped for 0.6 s is taken for dead.
func TestNodesHaveNoCPULimit(t *testing.T) {
	each(t, func(t *testing.T, objects []runtime.Object) {
		for _, c := range shardwatch(t, objects).Spec.Template.Spec.Containers {
			if limit, ok := c.Resources.Limits[core.ResourceCPU]; ok {
				t.Errorf("container %s has a CPU limit of %s", c.Name, limit.String())
			}
			if _, ok := c.Resources.Requests[core.ResourceCPU]; !ok {
				t.Errorf("container %s requests no CPU", c.Name)
			}
		}
	})
}

// Nodes reach what their flags name: DNS, etcd or apiservers, and an OpenTelemetry
// collector.
func TestNodesReachTheirDependencies(t *testing.T) {
	each(t, func(t *testing.T, objects []runtime.Object) {
		nodes, sources := shardwatch(t, objects), []int{2379}
		if servesKube(t, objects) {
			sources = []int{443, 6443}
		}
		for _, p := range of[*networking.NetworkPolicy](objects) {
			if p.Name != nodes.Name {
				continue
			}
			open := map[int]bool{}
			for _, rule := range p.Spec.Egress {
				if len(rule.To) > 0 {
					continue
				}
				for _, port := range rule.Ports {
					open[port.Port.IntValue()] = true
				}
			}
			for _, want := range append(sources, 53, 4317) {
				if !open[want] {
					t.Errorf("the network policy stops traffic to port %d", want)
				}
			}
		}
	})
}

// What may fill the memory fits the limit, nine tenths of which Go may use.
func TestMemoryFitsItsLimit(t *testing.T) {
	each(t, func(t *testing.T, objects []runtime.Object) {
		pod := &shardwatch(t, objects).Spec.Template.Spec
		settings := settings(t, objects, pod)
		bytes := func(name string) int64 {
			q, err := resource.ParseQuantity(strings.TrimSuffix(settings[name], "B"))
			if err != nil {
				t.Fatalf("%s=%s: %v", name, settings[name], err)
			}
			return q.Value()
		}
		const shards = 6 // twice as many as three founders begin with
		full := bytes("CACHENODE_MAX_CLIENT_BYTES") + bytes("CACHENODE_MAX_WATCH_BYTES")
		if servesKube(t, objects) {
			const former = 32 << 20                                                                                                     // versions of objects from before the window
			full += 2 * int64(len(strings.Split(settings["CACHENODE_KUBE_PRELOAD"], ","))) * (bytes("CACHENODE_WINDOW_BYTES") + former) // in protobuf and JSON
		} else {
			full += shards * (bytes("CACHENODE_WINDOW_BYTES") + bytes("CACHENODE_TOMBSTONE_BYTES"))
		}
		if limit := pod.Containers[0].Resources.Limits.Memory().Value(); full > limit*9/10 {
			t.Errorf("windows, deletes, clients and their watches may take %d MiB, the limit is %d MiB", full>>20, limit>>20)
		}
	})
}

// shardwatch returns the StatefulSet of the nodes.
func shardwatch(t *testing.T, objects []runtime.Object) *apps.StatefulSet {
	t.Helper()
	for _, s := range of[*apps.StatefulSet](objects) {
		if s.Name == "shardwatch" || s.Name == "shardwatch-kube" {
			return s
		}
	}
	t.Fatal("there is no StatefulSet of the nodes")
	return nil
}

// servesKube reports whether the nodes serve Kubernetes' API.
func servesKube(t *testing.T, objects []runtime.Object) bool {
	t.Helper()
	return settings(t, objects, &shardwatch(t, objects).Spec.Template.Spec)["CACHENODE_KUBE_LISTEN"] != ""
}

// settings returns the environment of the first container; what Kubernetes fills
// in is made up.
func settings(t *testing.T, objects []runtime.Object, pod *core.PodSpec) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, from := range pod.Containers[0].EnvFrom {
		for _, m := range of[*core.ConfigMap](objects) {
			if m.Name == from.ConfigMapRef.Name {
				for k, v := range m.Data {
					env[k] = v
				}
			}
		}
		if len(env) == 0 {
			t.Errorf("there is no ConfigMap %s", from.ConfigMapRef.Name)
		}
	}
	fields := map[string]string{
		"metadata.name": "shardwatch-0", "metadata.namespace": "shardwatch", "status.podIP": "192.0.2.7",
		"metadata.labels['topology.kubernetes.io/zone']": "",
	}
	for _, e := range pod.Containers[0].Env {
		value := e.Value
		if e.ValueFrom != nil {
			made, ok := fields[e.ValueFrom.FieldRef.FieldPath]
			if !ok {
				t.Errorf("%s: unknown field %s", e.Name, e.ValueFrom.FieldRef.FieldPath)
			}
			value = made
		}
		for k, v := range env {
			value = strings.ReplaceAll(value, "$("+k+")", v)
		}
		if strings.Contains(value, "$(") {
			t.Errorf("%s is %q: Kubernetes knows only variables that come before it", e.Name, value)
		}
		env[e.Name] = value
	}
	for name, value := range env {
		if strings.HasPrefix(value, "/") && strings.HasPrefix(name, "CACHENODE_") && name != "CACHENODE_PREFIX" && !mounted(pod, value) {
			t.Errorf("%s: no volume is mounted for %s", name, value)
		}
	}
	return env
}

func mounted(pod *core.PodSpec, file string) bool {
	for _, m := range pod.Containers[0].VolumeMounts {
		if file == m.MountPath || path.Dir(file) == m.MountPath {
			return true
		}
	}
	return false
}

func selects(t *testing.T, who string, s *meta.LabelSelector, have map[string]string) {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(s)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(have)) {
		t.Errorf("%s selects %v, the pods have %v: %v", who, selector, have, err)
	}
}

func knownPort(t *testing.T, pod *core.PodSpec, who string, port intstr.IntOrString) {
	t.Helper()
	for _, p := range pod.Containers[0].Ports {
		if p.Name == port.StrVal || p.ContainerPort == port.IntVal {
			return
		}
	}
	t.Errorf("%s: the container has no port %s", who, port.String())
}

func exists[T meta.Object](objects []T, name string) bool {
	for _, o := range objects {
		if o.GetName() == name {
			return true
		}
	}
	return false
}

// With the component node-certificates, each pod has a certificate for its own name, which is
// the one that the others ask for, from the nodes' authority and for both sides of a
// connection; its key is on the pod's machine alone, where the node can read it.
func TestNodeCertificatesAreForOneNode(t *testing.T) {
	pod, objects := withComponent(t, "production", "node-certificates")
	env := settings(t, objects, pod)
	var volume *core.Volume
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.MountPath != path.Dir(env["CACHENODE_PEER_TLS_CERT"]) {
			continue
		}
		for i := range pod.Volumes {
			if pod.Volumes[i].Name == m.Name {
				volume = &pod.Volumes[i]
			}
		}
	}
	if volume == nil || volume.CSI == nil || volume.Secret != nil {
		t.Fatalf("the peer port's certificate is not of the driver: %+v", volume)
	}
	if dir := path.Dir(env["CACHENODE_PEER_TLS_CERT"]); path.Dir(env["CACHENODE_PEER_TLS_KEY"]) != dir || path.Dir(env["CACHENODE_PEER_TLS_CA"]) != dir {
		t.Errorf("key %s and CA %s are not beside the certificate", env["CACHENODE_PEER_TLS_KEY"], env["CACHENODE_PEER_TLS_CA"])
	}
	if volume.CSI.Driver != "csi.cert-manager.io" || volume.CSI.ReadOnly == nil || !*volume.CSI.ReadOnly {
		t.Errorf("the volume: %+v", volume.CSI)
	}
	asked := volume.CSI.VolumeAttributes
	name := strings.NewReplacer("${POD_NAME}", env["CACHENODE_NAME"], "${POD_NAMESPACE}", "shardwatch").Replace(asked["csi.cert-manager.io/dns-names"])
	allowed := env["CACHENODE_PEER_TLS_ALLOWED_SAN"]
	if !strings.Contains(allowed, "{node}") || name != strings.ReplaceAll(allowed, "{node}", env["CACHENODE_NAME"]) {
		t.Errorf("the pod gets a certificate for %q, nodes ask for %q", name, allowed)
	}
	for _, usage := range []string{"server auth", "client auth"} {
		if !slices.Contains(strings.Split(asked["csi.cert-manager.io/key-usages"], ","), usage) {
			t.Errorf("usages %q lack %q", asked["csi.cert-manager.io/key-usages"], usage)
		}
	}
	if asked["csi.cert-manager.io/issuer-kind"] != "Issuer" || !exists(of[*certmanager.Issuer](objects), asked["csi.cert-manager.io/issuer-name"]) {
		t.Errorf("there is no %s %s", asked["csi.cert-manager.io/issuer-kind"], asked["csi.cert-manager.io/issuer-name"])
	}
	for _, c := range of[*certmanager.Certificate](objects) {
		if c.Name == "shardwatch-clients" && c.Spec.IssuerRef.Name == asked["csi.cert-manager.io/issuer-name"] {
			t.Error("clients get certificates of the nodes' issuer")
		}
	}
	if group := pod.SecurityContext.FSGroup; group == nil || asked["csi.cert-manager.io/fs-group"] != strconv.FormatInt(*group, 10) {
		t.Errorf("the key is for group %q, the pod has %+v", asked["csi.cert-manager.io/fs-group"], pod.SecurityContext)
	}
}

// A running cluster changes to node-certificates in three steps, as that component says: the names
// that nodes accept change before the certificates, and again after them. tlsconf has a test that
// nodes of neighbouring steps accept each other: TestNodesAcceptEachOtherBetweenTheStepsToSeparateCertificates.
func TestNodeCertificatesComeInSteps(t *testing.T) {
	const shared, own = "*.shardwatch-nodes.shardwatch.svc", "{node}.shardwatch-nodes.shardwatch.svc"
	for i, step := range []struct {
		components []string
		allowed    string
		separate   bool
	}{
		{nil, "", false},
		{[]string{"node-certificates-migration"}, shared, false},
		{[]string{"node-certificates", "node-certificates-migration"}, shared, true},
		{[]string{"node-certificates"}, own, true},
	} {
		pod, objects := withComponent(t, "production", step.components...)
		separate := slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == "peers-tls" && v.CSI != nil })
		if allowed := settings(t, objects, pod)["CACHENODE_PEER_TLS_ALLOWED_SAN"]; allowed != step.allowed || separate != step.separate {
			t.Errorf("step %d: nodes accept %q, separate certificates: %t, want %q, %t", i, allowed, separate, step.allowed, step.separate)
		}
		if !slices.ContainsFunc(of[*certmanager.Certificate](objects), func(c *certmanager.Certificate) bool {
			return c.Name == "shardwatch-peers" && slices.Equal(c.Spec.DNSNames, []string{shared})
		}) {
			t.Errorf("step %d: the shared certificate is not for %s", i, shared)
		}
	}
}

// withComponent returns the pod of the nodes, and all objects, of an overlay with components
// on top.
func withComponent(t *testing.T, overlay string, components ...string) (*core.PodSpec, []runtime.Object) {
	t.Helper()
	dir := t.TempDir()
	top, err := filepath.Abs(filepath.Join(root, "deploy/k8s"))
	if err == nil {
		top, err = filepath.Rel(dir, top) // kustomize takes no absolute paths
	}
	var paths []string
	for _, c := range components {
		paths = append(paths, top+"/components/"+c)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil,
			"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s/overlays/%s]\ncomponents: [%s]\n", top, overlay, strings.Join(paths, ", ")), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	objects, err := decode(strict(t), buildAt(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return &shardwatch(t, objects).Spec.Template.Spec, objects
}
