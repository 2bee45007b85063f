package kube_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/internal/kube/report"
)

// manifest has the tested parts of an object of deploy/k8s.
type manifest struct {
	Kind     string
	Metadata metav1.ObjectMeta
	Data     map[string]string   // of a ConfigMap
	Rules    []rbacv1.PolicyRule // of a ClusterRole
	Spec     struct {
		SecretName string // of a Certificate
		DNSNames   []string
		IssuerRef  struct{ Name string }
		Template   corev1.PodTemplateSpec // of a StatefulSet
	}
	text []byte
}

// overlay renders deploy/k8s/overlays/kube.
func overlay(t *testing.T) (all []manifest) {
	t.Helper()
	command := func(name string, args ...string) []byte {
		cmd := exec.Command(name, args...)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return bytes.TrimSpace(out)
	}
	kustomize := string(command("tools/pinned", "kustomize"))
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(command(kustomize, "build", "deploy/k8s/overlays/kube"))))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		m := manifest{text: document}
		if err := errors.Join(err, yaml.Unmarshal(document, &m)); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
}

// one returns the manifest of a kind.
func one(t *testing.T, all []manifest, kind string) manifest {
	t.Helper()
	i := slices.IndexFunc(all, func(m manifest) bool { return m.Kind == kind })
	if i < 0 {
		t.Fatalf("there is no %s", kind)
	}
	return all[i]
}

// apply creates the objects of the kinds that grant the nodes access, and returns the token of
// their service account.
func apply(ctx context.Context, t *testing.T, admin *kubernetes.Clientset, all []manifest) string {
	t.Helper()
	account := one(t, all, "ServiceAccount").Metadata
	for _, at := range [][2]string{
		{"Namespace", "/api/v1/namespaces"},
		{"ServiceAccount", "/api/v1/namespaces/" + account.Namespace + "/serviceaccounts"},
		{"ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterroles"},
		{"ClusterRoleBinding", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"},
	} {
		if err := admin.RESTClient().Post().AbsPath(at[1]).SetHeader("Content-Type", "application/yaml").Body(one(t, all, at[0]).text).Do(ctx).Error(); err != nil {
			t.Fatalf("%s: %v", at[0], err)
		}
	}
	token, err := admin.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// secrets writes the Secrets that the pods mount: from the Certificates, and those created by
// operators. It returns the directory that replaces /etc/shardwatch, and the CA of clients.
func (c *cluster) secrets(t *testing.T, all []manifest) (dir string, clients *certtest.CA) {
	t.Helper()
	dir = t.TempDir()
	pod := one(t, all, "StatefulSet").Spec.Template.Spec
	authorities := map[string]*certtest.CA{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		secret, at := pod.Volumes[i].Secret.SecretName, filepath.Join(dir, strings.TrimPrefix(mount.MountPath, "/etc/shardwatch/"))
		files := map[string][]byte{}
		pair := func(leaf certtest.Leaf, ca *certtest.CA) {
			files["tls.crt"], files["tls.key"], files["ca.crt"] = leaf.Cert, leaf.Key, ca.PEM
		}
		switch secret {
		case "shardwatch-gossip":
			key := make([]byte, 32)
			_, _ = rand.Read(key) // never fails
			files["key"] = []byte(base64.StdEncoding.EncodeToString(key))
		case "shardwatch-kube-proxy":
			pair(c.front.Issue(t, "front-proxy"), c.front)
		default:
			i := slices.IndexFunc(all, func(m manifest) bool { return m.Kind == "Certificate" && m.Spec.SecretName == secret })
			if i < 0 {
				t.Fatalf("no Certificate makes the Secret %s", secret)
			}
			issuer := all[i].Spec.IssuerRef.Name
			if authorities[issuer] == nil {
				authorities[issuer] = certtest.NewCA(t, issuer)
			}
			pair(authorities[issuer].Issue(t, secret, all[i].Spec.DNSNames...), authorities[issuer])
		}
		for name, text := range files {
			if err := errors.Join(os.MkdirAll(at, 0o700), os.WriteFile(filepath.Join(at, name), text, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir, authorities["shardwatch-kube-clients"]
}

// overlayNodes starts three nodes with the settings of the overlay's pods, and returns the CA that
// their clients trust. Only the locations of files, apiservers and ports differ from the pods.
func (c *cluster) overlayNodes(t *testing.T, all []manifest, token, server string) (nodes []*node, clients *certtest.CA) {
	t.Helper()
	dir, clients := c.secrets(t, all)
	c.write(t, "token", []byte(token))
	c.write(t, "overlay.kubeconfig", fmt.Appendf(nil, `{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: %q, certificate-authority: ca.pem}}], users: [{name: a, user: {tokenFile: token}}]}`, server))
	const size = 3
	ports, err := freeport.Take(4 * size)
	if err != nil {
		t.Fatal(err)
	}
	scraper := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: certtest.Pool(clients), ServerName: "shardwatch-kube.shardwatch-kube.svc",
		Certificates: []tls.Certificate{clients.Issue(t, "shardwatch-kube-metrics").Pair},
	}}}
	t.Cleanup(scraper.CloseIdleConnections)
	for i := range size {
		own := ports[4*i : 4*i+4]
		here := map[string]string{
			"--name": fmt.Sprintf("shardwatch-kube-%d", i), "--advertise": "127.0.0.1", "--kubeconfig": filepath.Join(c.dir, "overlay.kubeconfig"),
			"--join": ports[2] + "," + ports[4*size-2], "--kube-listen": own[0], "--peer-listen": own[1], "--gossip-listen": own[2], "--http-listen": own[3],
		}
		n := &node{c: c, name: here["--name"], kube: own[0], http: own[3], pages: scraper, args: []string{"run"}}
		for name, value := range one(t, all, "ConfigMap").Data {
			flag := "--" + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "CACHENODE_"), "_", "-"))
			if file, ok := strings.CutPrefix(value, "/etc/shardwatch/"); ok {
				value = filepath.Join(dir, file)
			}
			if _, ok := here[flag]; !ok {
				here[flag] = value
			}
		}
		for flag, value := range here {
			n.args = append(n.args, flag, value)
		}
		t.Cleanup(n.kill)
		n.start(t)
		nodes = append(nodes, n)
	}
	return nodes, clients
}

// rights returns the rights of rules, one text for each.
func rights(rules []rbacv1.PolicyRule) (all []string) {
	for _, r := range rules {
		for _, url := range r.NonResourceURLs {
			for _, verb := range r.Verbs {
				all = append(all, verb+" "+url)
			}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					all = append(all, strings.TrimSpace(verb+" "+path.Join(group, resource)+" "+strings.Join(r.ResourceNames, " ")))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// audited reads an audit log: the rights used by its requests, and the refused requests.
func audited(t *testing.T, log string) (rights, refused []string) {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var e struct {
			Verb, RequestURI string
			ObjectRef        struct{ APIGroup, Resource, Name string }
			ResponseStatus   struct{ Code int }
		}
		if err := d.Decode(&e); err != nil { // io.EOF, or an incomplete line
			slices.Sort(rights)
			return slices.Compact(rights), refused
		}
		switch ref := e.ObjectRef; {
		case e.ResponseStatus.Code == http.StatusForbidden || e.ResponseStatus.Code == http.StatusUnauthorized:
			refused = append(refused, fmt.Sprintf("%d %s %s", e.ResponseStatus.Code, e.Verb, e.RequestURI))
		case ref.Resource != "":
			rights = append(rights, strings.TrimSpace(e.Verb+" "+path.Join(ref.APIGroup, ref.Resource)+" "+ref.Name))
		default:
			rights = append(rights, e.Verb+" "+e.RequestURI)
		}
	}
}

// TestOverlay runs the nodes of deploy/k8s/overlays/kube in front of a kube-apiserver with RBAC.
// The apiserver's audit log shows that the nodes use each right of their ClusterRole, and no other.
// Informers at the nodes survive a node's death without a list.
func TestOverlay(t *testing.T) {
	c := newCluster(t)
	all := overlay(t)
	log, account := filepath.Join(c.dir, "audit.log"), one(t, all, "ServiceAccount").Metadata
	c.write(t, "audit.yaml", fmt.Appendf(nil, `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, users: ["system:serviceaccount:%s:%s"]}, {level: None}]
`, account.Namespace, account.Name))
	at := c.apiserver(t, "--audit-policy-file="+filepath.Join(c.dir, "audit.yaml"), "--audit-log-path="+log)
	writer := c.clients(t, at.url, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	nodes, ca := c.overlayNodes(t, all, apply(ctx, t, writer, all), at.url)
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: certtest.Pool(ca), ServerName: "shardwatch-kube.shardwatch-kube.svc"}}}
	defer stranger.CloseIdleConnections()
	for _, path := range []string{"/", "/metrics", report.Path} {
		if text, err := nodes[0].get(ctx, path); err != nil {
			t.Errorf("%s with a certificate: %v %s", path, err, text)
		}
		anyone := &node{http: nodes[0].http, pages: stranger}
		if text, err := anyone.get(ctx, path); err == nil || !strings.HasPrefix(err.Error(), "403 ") {
			t.Errorf("%s without a certificate: %v %s", path, err, text)
		}
	}
	r := mathrand.New(mathrand.NewPCG(19, 20))
	churn(t, writer, r, 40)
	var lists listing
	trust := func(cfg *rest.Config) {
		cfg.TLSClientConfig = rest.TLSClientConfig{CAData: ca.PEM, ServerName: "shardwatch-kube.shardwatch-kube.svc"}
		cfg.WrapTransport = lists.wrap
		cfg.Dial = new(net.Dialer).DialContext // a separate connection: they use all nodes
	}
	url := balancer(t, nodes...)
	readers := c.informersWith(ctx, t, url, 2, trust)
	client := c.clients(t, url, trust)
	settings := one(t, all, "ConfigMap").Data
	for text := range strings.SplitSeq(settings["CACHENODE_KUBE_PRELOAD"], ",") {
		name, rest, _ := strings.Cut(text, ".")
		version, group, grouped := strings.Cut(rest, ".")
		at := path.Join("/api", version, name)
		if grouped {
			at = path.Join("/apis", group, version, name)
		}
		// For a list of the current version its owner requests that version from the apiserver.
		if err := client.RESTClient().Get().AbsPath(at).SetHeader("Accept", "application/vnd.kubernetes.protobuf").Do(ctx).Error(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	unknown := c.clients(t, url, func(cfg *rest.Config) {
		trust(cfg)
		cfg.BearerToken = "unknown"
	})
	if err := unknown.RESTClient().Get().AbsPath("/api/v1/pods").Do(ctx).Error(); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token that is not valid: %v", err)
	}
	want := rights(one(t, all, "ClusterRole").Rules)
	eventually(ctx, t, "the nodes use each right", func() error {
		got, refused := audited(t, log)
		if len(refused) > 0 {
			t.Fatalf("refused: %q", refused)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("rights used: %q\nand those of the ClusterRole: %q", got, want)
		}
		return nil
	})
	overlayShown(ctx, t, nodes, ca, at.url, writer, len(readers))
	first := lists.n.Load()
	nodes[0].kill()
	overlaySilent(ctx, t, nodes[0], nodes[1], ca)
	churn(t, writer, r, 30)
	for _, n := range readers {
		n.equals(ctx, t, writer)
	}
	if again := lists.n.Load() - first; again != 0 {
		t.Errorf("%d lists by %d informers after the death of a node", again, len(readers))
	}
}
