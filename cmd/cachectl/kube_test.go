package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/kube/report"
)

// kubeTier are nodes that send reports, by their names.
type kubeTier struct {
	t       *testing.T
	reports map[string]*report.Report
	servers map[string]*httptest.Server
}

// newKubeTier starts nodes with the reports of kubeReports; each report names all nodes as members.
func newKubeTier(t *testing.T) *kubeTier {
	t.Helper()
	k := &kubeTier{t, kubeReports(), map[string]*httptest.Server{}}
	var members []report.Member
	for _, name := range []string{"kube-1", "kube-2", "kube-3"} {
		r := k.reports[name]
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != report.Path {
				http.NotFound(w, req)
				return
			}
			_ = json.NewEncoder(w).Encode(r) // the command fails
		}))
		t.Cleanup(s.Close)
		k.servers[name] = s
		members = append(members, report.Member{Name: name, HTTP: k.address(name), Zone: r.Zone, Version: r.Version})
	}
	for _, r := range k.reports {
		r.Members = members
	}
	return k
}

func (k *kubeTier) address(name string) string { return k.servers[name].Listener.Addr().String() }

// kill makes a node refuse connections.
func (k *kubeTier) kill(name string) { k.servers[name].Close() }

// plain replaces the addresses of nodes in an output.
func (k *kubeTier) plain(text string) string {
	for name := range k.servers {
		text = strings.ReplaceAll(text, k.address(name), name+":7480")
	}
	return text
}

// kubeReports is a tier of three: kube-1 follows pods at an apiserver, and the others follow kube-1.
func kubeReports() map[string]*report.Report {
	started := time.Now().Add(-49*time.Hour - time.Minute)
	first := []report.Apiserver{{URL: "https://10.0.0.1:6443"}, {URL: "https://10.0.0.2:6443", Avoided: true, Error: "connection refused"}}
	return map[string]*report.Report{
		"kube-1": {
			Node: "kube-1", Version: "1.0.0", Zone: "a", Started: started, Apiservers: first,
			Requests: report.Requests{Cached: 100, Passed: 20, Failed: 3},
			Resources: []report.Resource{
				{Name: "pods.v1", Encoding: "protobuf", State: report.Ready, From: "https://10.0.0.1:6443", Objects: 1000, Bytes: 3 << 20, Floor: 5000, Progress: 9000, Watches: 10},
				{Name: "deployments.v1.apps", Encoding: "json", State: report.Ready, From: "kube-2", Objects: 7, Bytes: 2048, Floor: 100, Progress: 8000, Watches: 1},
			},
		},
		"kube-2": {
			Node: "kube-2", Version: "1.0.0", Zone: "b", Started: started, Apiservers: first[:1],
			NotReady: []string{"configmaps.v1 is loading", "no apiserver answers"},
			Resources: []report.Resource{
				{Name: "pods.v1", Encoding: "protobuf", State: report.Ready, From: "kube-1", Objects: 998, Bytes: 2 << 20, Floor: 6000, Progress: 8990, Watches: 5, Losses: 2},
				{Name: "deployments.v1.apps", Encoding: "json", State: report.Failing, Error: "connection refused", From: "https://10.0.0.1:6443", Objects: 7, Bytes: 4096, Floor: 90, Progress: 8000, Watches: 2},
				{Name: "configmaps.v1", Encoding: "protobuf", State: report.Loading},
			},
		},
		"kube-3": {
			Node: "kube-3", Version: "1.0.1", Started: started,
			Resources: []report.Resource{
				{Name: "pods.v1", Encoding: "protobuf", State: report.Loading, From: "kube-1", Objects: 3, Bytes: 100, Floor: 8999, Progress: 1, Watches: 1, Losses: 1},
				{Name: "pods.v1", Encoding: "json", State: report.Ready, From: "https://10.0.0.1:6443", Objects: 1000, Bytes: 5 << 20, Floor: 7000, Progress: 9000, Watches: 4},
				{Name: "widgets.v1.example.org", Encoding: "json", State: report.Withdrawn},
				{Name: "deployments.v1.apps", Encoding: "json", State: report.Withdrawn},
			},
		},
	}
}

// cachectl runs a command line.
func cachectl(t *testing.T, env map[string]string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr strings.Builder
	getenv := func(name string) string {
		if env[name] == "" && name == "CACHECTL_TIMEOUT" {
			return "2m" // a slow machine is no failure
		}
		return env[name]
	}
	p := cli.Process{Getenv: getenv, Stdout: &stdout, Stderr: &stderr}
	code = execute(t.Context(), p, args)
	return code, stdout.String(), stderr.String()
}

// wantOutput compares an output with the wanted one.
func wantOutput(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestKubeStatus(t *testing.T) {
	k := newKubeTier(t)
	code, out, errOut := cachectl(t, nil, "kube", "status", "--http", k.address("kube-2"))
	if code != exitDone || errOut != "" {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	wantOutput(t, k.plain(out), `
NODE    ZONE  VERSION  UPTIME  READY  APISERVERS                              WATCHES  OBJECTS  BYTES    CACHED  PASSED  FAILED
kube-1  a     1.0.0    2d1h    yes    10.0.0.1:6443, 10.0.0.2:6443 (avoided)  11       1007     3.0 MiB  100     20      3
kube-2  b     1.0.0    2d1h    no     10.0.0.1:6443                           7        1005     2.0 MiB  0       0       0
kube-3  -     1.0.1    2d1h    yes    -                                       5        1003     5.0 MiB  0       0       0
kube-1 avoids 10.0.0.2:6443: connection refused
kube-2 is not ready: configmaps.v1 is loading; no apiserver answers
`)
	code, out, _ = cachectl(t, nil, "kube", "status", "--http", k.address("kube-2"), "-o", "json")
	var doc struct{ Nodes []map[string]any }
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != exitDone || len(doc.Nodes) != 3 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	for _, n := range doc.Nodes {
		if up, ok := n["uptime_seconds"].(float64); !ok || up < 49*3600 {
			t.Errorf("uptime %v", n["uptime_seconds"])
		}
		delete(n, "uptime_seconds")
	}
	one, err := json.Marshal(doc.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, k.plain(string(one)), `{"apiservers":[{"avoided":false,"url":"https://10.0.0.1:6443"},{"avoided":true,"error":"connection refused","url":"https://10.0.0.2:6443"}],`+
		`"bytes":3147776,"http":"kube-1:7480","name":"kube-1","objects":1007,"ready":true,"requests":{"cached":100,"failed":3,"passed":20},"version":"1.0.0","watches":11,"zone":"a"}`)
	_, out, _ = cachectl(t, nil, "kube", "status", "--http", k.address("kube-3"), "--local", "-o", "yaml")
	if !strings.HasPrefix(out, "nodes:\n") || !strings.Contains(out, "name: kube-3\n") || !strings.Contains(out, "\n      cached: 0\n") {
		t.Errorf("YAML: %s", out)
	}
	if _, out, _ = cachectl(t, nil, "kube", "status", "--http", k.address("kube-1"), "-o", "name"); out != "kube-1\nkube-2\nkube-3\n" {
		t.Errorf("names: %s", out)
	}
}

func TestKubeResources(t *testing.T) {
	k := newKubeTier(t)
	at := []string{"kube", "resources", "--http", k.address("kube-1")}
	code, out, errOut := cachectl(t, nil, at...)
	if code != exitDone || errOut != "" {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	wantOutput(t, out, `
RESOURCE                ENCODING  FOLLOWED BY              COPIES  OBJECTS  BYTES    WATCHES  PROGRESS  LAG  FLOOR  STATE                             LOSSES
configmaps.v1           protobuf  -                        1       -        -        -        -         -    -      kube-2 loading                    0
deployments.v1.apps     json      kube-2 at 10.0.0.1:6443  2       7        2.0 KiB  3        8000      0    100    kube-2 failing, kube-3 withdrawn  0
pods.v1                 json      kube-3 at 10.0.0.1:6443  1       1000     5.0 MiB  4        9000      0    7000   ready                             0
pods.v1                 protobuf  kube-1 at 10.0.0.1:6443  3       1000     3.0 MiB  15       9000      10   6000   kube-3 loading                    3
widgets.v1.example.org  json      -                        0       -        -        -        -         -    -      kube-3 withdrawn                  0
deployments.v1.apps in json at kube-2: connection refused
`)
	// The resources of one node, compared with all nodes.
	code, out, errOut = cachectl(t, nil, append(at, "--node", "kube-2")...)
	if code != exitDone || errOut != "" {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	wantOutput(t, out, `
RESOURCE             ENCODING  FOLLOWED BY              COPIES  OBJECTS  BYTES    WATCHES  PROGRESS  LAG  FLOOR  STATE           LOSSES
configmaps.v1        protobuf  -                        1       -        -        -        -         -    -      kube-2 loading  0
deployments.v1.apps  json      kube-2 at 10.0.0.1:6443  1       7        4.0 KiB  2        8000      0    90     kube-2 failing  0
pods.v1              protobuf  kube-1 at 10.0.0.1:6443  1       998      2.0 MiB  5        8990      10   6000   ready           2
deployments.v1.apps in json at kube-2: connection refused
`)
	if code, _, errOut = cachectl(t, nil, append(at, "--node", "kube-9")...); code != exitFailed || !strings.Contains(errOut, `--node "kube-9": there is no such node; see cachectl kube status`) {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	if code, _, errOut = cachectl(t, nil, append(at, "--node", "kube-2", "--local")...); code != exitFailed || !strings.Contains(errOut, "the node was not asked: leave out --local") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	// As JSON lines.
	_, out, _ = cachectl(t, nil, append(at, "--node", "kube-2", "-o", "jsonl")...)
	if lines := strings.Split(out, "\n"); len(lines) != 4 {
		t.Errorf("lines: %s", out)
	} else {
		wantOutput(t, lines[2], `{"name":"pods.v1","encoding":"protobuf","followed_by":[{"node":"kube-1","apiserver":"https://10.0.0.1:6443"}],`+
			`"objects":998,"bytes":2097152,"watches":5,"progress":8990,"lag_versions":10,"floor":6000,"losses":2,`+
			`"nodes":[{"node":"kube-2","state":"ready","from":"kube-1","objects":998,"bytes":2097152,"watches":5,"progress":8990,"lag_versions":10,"floor":6000,"losses":2}]}`)
	}
	if _, out, _ = cachectl(t, nil, append(at, "-o", "jsonpath=$.resources[?@.lag_versions > 0].name")...); out != "pods.v1\n" {
		t.Errorf("selected: %s", out)
	}
}

// A node without a report is listed, with the reason.
func TestKubeWithoutANode(t *testing.T) {
	k := newKubeTier(t)
	k.kill("kube-3")
	code, out, errOut := cachectl(t, nil, "kube", "status", "--http", k.address("kube-1"))
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	wantOutput(t, k.plain(out), `
NODE    ZONE  VERSION  UPTIME  READY      APISERVERS                              WATCHES  OBJECTS  BYTES    CACHED  PASSED  FAILED
kube-1  a     1.0.0    2d1h    yes        10.0.0.1:6443, 10.0.0.2:6443 (avoided)  11       1007     3.0 MiB  100     20      3
kube-2  b     1.0.0    2d1h    no         10.0.0.1:6443                           7        1005     2.0 MiB  0       0       0
kube-3  -     -        -       no report  -                                       -        -        -        -       -       -
kube-1 avoids 10.0.0.2:6443: connection refused
kube-2 is not ready: configmaps.v1 is loading; no apiserver answers
kube-3 (kube-3:7480) sent no report: dial tcp kube-3:7480: connect: connection refused
`)
	if !strings.HasPrefix(errOut, "cachectl: 1 of 3 nodes sent no report\n") || !strings.Contains(errOut, "kubectl port-forward") {
		t.Errorf("error: %s", errOut)
	}
	code, out, errOut = cachectl(t, nil, "kube", "resources", "--http", k.address("kube-1"), "-o", "json")
	var doc struct {
		Resources []map[string]any
		Failed    []map[string]string
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != exitFailed || len(doc.Resources) != 3 || len(doc.Failed) != 1 || doc.Failed[0]["node"] != "kube-3" {
		t.Errorf("exit code %d, %v: %s %s", code, err, out, errOut)
	}
	_, out, _ = cachectl(t, nil, "kube", "status", "--http", k.address("kube-1"), "-o", "jsonpath=$.nodes[?@.error].name")
	if out != "kube-3\n" {
		t.Errorf("nodes with errors: %s", out)
	}

	// A node that is asked by its address, and that no report names.
	gone := k.address("kube-3")
	for _, r := range k.reports {
		r.Members = r.Members[:2]
	}
	code, out, errOut = cachectl(t, nil, "kube", "resources", "--http", k.address("kube-1")+","+gone)
	if code != exitFailed || !strings.Contains(out, gone+" sent no report: ") || !strings.Contains(errOut, "1 of 3 nodes") {
		t.Errorf("exit code %d: %s %s", code, out, errOut)
	}

	// --local asks no other nodes, and reports that.
	code, out, errOut = cachectl(t, nil, "kube", "resources", "--http", k.address("kube-1"), "--local")
	if code != exitDone || errOut != "" || !strings.HasSuffix(out, "\nnot asked (--local): kube-2\n") || strings.Contains(out, "configmaps.v1") {
		t.Errorf("exit code %d: %s %s", code, out, errOut)
	}
}

// A node that listens on loopback announces an address at which each machine reaches another node.
func TestKubeKnowsAnotherNodeAtAnAddress(t *testing.T) {
	k := newKubeTier(t)
	members := []report.Member{{Name: "kube-1", HTTP: k.address("kube-1")}, {Name: "kube-2", HTTP: k.address("kube-1")}, {Name: "kube-3", HTTP: k.address("kube-2")}, {Name: "kube-4"}}
	for _, r := range k.reports {
		r.Members = members
	}
	k.reports["kube-2"].Node = "other"
	code, out, errOut := cachectl(t, nil, "kube", "status", "--http", k.address("kube-1"))
	if code != exitFailed || !strings.Contains(errOut, "3 of 5 nodes sent no report") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	for _, want := range []string{
		"kube-2 (kube-1:7480) sent no report: kube-1 answers at its address\n",
		"kube-3 (kube-2:7480) sent no report: other answers at its address\n",
		"kube-4 sent no report: no report has its address\n",
		"\nother ",
	} {
		if !strings.Contains(k.plain(out), want) {
			t.Errorf("no %q in\n%s", want, k.plain(out))
		}
	}
}

// A node is asked at a forwarded port instead of its announced address.
func TestKubeByForwardedPorts(t *testing.T) {
	k := newKubeTier(t)
	k.reports["kube-1"].Members = []report.Member{{Name: "kube-1", HTTP: "127.0.0.1:1"}, {Name: "kube-2", HTTP: "127.0.0.1:2"}}
	k.reports["kube-2"].Members = k.reports["kube-1"].Members
	code, out, errOut := cachectl(t, map[string]string{"CACHECTL_KUBE_HTTP": k.address("kube-1") + ", " + k.address("kube-2")}, "kube", "status", "-o", "name")
	if code != exitDone || out != "kube-1\nkube-2\n" {
		t.Errorf("exit code %d: %s %s", code, out, errOut)
	}
}

// An answer is read up to its bound: then the node's writes fail.
func TestKubeAnswerAboveTheBound(t *testing.T) {
	const bound = 64 << 20
	wrote := make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write([]byte(`{"node":"n","x":"`))
		for sent := 0; err == nil && sent < 2*bound; sent += 1 << 20 { // sockets hold less than the bound
			_, err = w.Write(bytes.Repeat([]byte("x"), 1<<20))
		}
		wrote <- err
	}))
	t.Cleanup(s.Close)
	code, _, errOut := cachectl(t, nil, "kube", "status", "--http", s.Listener.Addr().String())
	if code != exitFailed || !strings.Contains(errOut, "its answer has more than 64 MiB") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	if err := <-wrote; err == nil {
		t.Errorf("%d MiB were read", 2*bound>>20)
	}
}

// The nodes of deploy/k8s/overlays/kube have one certificate, without the pod addresses that they
// advertise.
func TestKubeByCertificatesOfTheOverlay(t *testing.T) {
	names := overlayNames(t)
	ca := certtest.NewCA(t, "shardwatch kube clients")
	server, client := ca.Issue(t, "server", names...).Pair, certtest.NewFiles(t, ca.Issue(t, "shardwatch-kube-metrics"), ca)
	reports := kubeReports()
	serve := func(name, host string) string {
		ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		s := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(reports[name]) // the command fails
		}), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}}
		s.TLS = &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: certtest.Pool(ca)}
		s.StartTLS()
		t.Cleanup(s.Close)
		return ln.Addr().String()
	}
	// The test's CA puts 127.0.0.1 into each certificate; 127.0.0.2 is like a pod's address.
	forwarded, pod := serve("kube-1", "127.0.0.1"), serve("kube-2", "127.0.0.2")
	reports["kube-1"].Members = []report.Member{{Name: "kube-1", HTTP: "127.0.0.2:1"}, {Name: "kube-2", HTTP: pod}}
	reports["kube-2"].Members = reports["kube-1"].Members
	_, port, err := net.SplitHostPort(forwarded)
	if err != nil {
		t.Fatal(err)
	}
	at := []string{"kube", "status", "-o", "name", "--cacert", client.CA, "--cert", client.Cert, "--key", client.Key, "--http"}
	for name, c := range map[string]struct {
		args []string
		env  string
		code int
		out  string
		err  string
	}{
		"a forwarded port":     {[]string{"localhost:" + port, "--local"}, "", exitDone, "kube-1\n", ""},
		"a pod's address":      {[]string{"localhost:" + port}, "", exitFailed, "kube-1\nkube-2\n", "give a name that it has with --tls-server-name"},
		"a name":               {[]string{"localhost:" + port, "--tls-server-name", names[0]}, "", exitDone, "kube-1\nkube-2\n", ""},
		"a name of a variable": {[]string{pod + ",localhost:" + port}, names[0], exitDone, "kube-1\nkube-2\n", ""},
		"another name":         {[]string{"localhost:" + port, "--tls-server-name", "other"}, "", exitFailed, "", "not other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := cachectl(t, map[string]string{"CACHECTL_KUBE_TLS_SERVER_NAME": c.env}, append(at, c.args...)...)
			if code != c.code || out != c.out || !strings.Contains(errOut, c.err) {
				t.Errorf("exit code %d: %s%s", code, out, errOut)
			}
		})
	}
}

// overlayNames returns the names in the certificate of the HTTP ports of deploy/k8s/overlays/kube.
func overlayNames(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/k8s/overlays/kube/certificates.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("\n  secretName: shardwatch-kube-clients\n"))
	_, text, _ = bytes.Cut(text, []byte("\n  dnsNames:\n"))
	text, _, found := bytes.Cut(text, []byte("\n  issuerRef:\n"))
	names := strings.Fields(strings.ReplaceAll(string(text), "- ", ""))
	if !found || !slices.Contains(names, "localhost") {
		t.Fatalf("the certificate has the names %q, and no localhost", names)
	}
	return names
}

// Each failure names the flag or the command that fixes it.
func TestKubeErrorsNameTheRemedy(t *testing.T) {
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	status := func(code int, text string) string {
		return serve(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) })
	}
	body := func(text string) string {
		return serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }) // the command fails
	}
	ours, others := certtest.NewCA(t, "ours"), certtest.NewCA(t, "others")
	files, same := certtest.NewFiles(t, ours.Issue(t, "client"), ours), certtest.NewFiles(t, others.Issue(t, "client"), others)
	secured := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "a client certificate is needed here (--http-tls-client-ca)", http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(kubeReports()["kube-1"]) // the command fails
	}))
	secured.TLS = &tls.Config{Certificates: []tls.Certificate{ours.Issue(t, "server").Pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: certtest.Pool(ours)}
	secured.Config.ErrorLog = log.New(io.Discard, "", 0)
	secured.StartTLS()
	t.Cleanup(secured.Close)
	quiet, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = quiet.Close() })
	plain, https := body("{}"), secured.Listener.Addr().String()
	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"refused":                    {[]string{"--http", "127.0.0.1:1"}, exitFailed, []string{"no node sent a report: 127.0.0.1:1: ", "connection refused", "--http-listen", "CACHECTL_KUBE_HTTP", "kubectl port-forward"}},
		"no answer":                  {[]string{"--http", quiet.Addr().String(), "--timeout", "100ms"}, exitFailed, []string{"no answer in time (half of --timeout 100ms)", "kubectl port-forward"}},
		"no Kubernetes API":          {[]string{"--http", status(http.StatusNotFound, "404 page not found")}, exitFailed, []string{"it does not serve Kubernetes' API", "--kube-listen", "cachectl status"}},
		"no right":                   {[]string{"--http", status(http.StatusForbidden, "no right\nmore")}, exitFailed, []string{"403 Forbidden: no right\n", "--http-tls-client-ca"}},
		"busy":                       {[]string{"--http", status(http.StatusServiceUnavailable, "too many requests")}, exitFailed, []string{"503 Service Unavailable: too many requests\n"}},
		"another failure":            {[]string{"--http", status(http.StatusBadGateway, "bad\x1b[2J")}, exitFailed, []string{`502 Bad Gateway: "bad\x1b[2J"`, "7480"}},
		"a redirect to another host": {[]string{"--http", serve(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://"+plain, http.StatusFound) })}, exitFailed, []string{"302 Found", "--http-listen"}},
		"no JSON":                    {[]string{"--http", body("hello")}, exitFailed, []string{"is not a report: invalid character", "--http-listen"}},
		"no name":                    {[]string{"--http", plain}, exitFailed, []string{"it does not name a node", "--http-listen"}},
		"TLS of one side":            {[]string{"--http", plain, "--tls"}, exitFailed, []string{"leave out --tls", `--context ""`}},
		"TLS of the node":            {[]string{"--http", https}, exitFailed, []string{"give --cacert (or --tls)"}},
		"another CA":                 {[]string{"--http", https, "--cacert", same.CA}, exitFailed, []string{"is not signed by a CA in --cacert"}},
		"no certificate":             {[]string{"--http", https, "--cacert", files.CA}, exitFailed, []string{"403 Forbidden: a client certificate is needed here", "give --cert and --key"}},
		"foreign":                    {[]string{"--http", https, "--cacert", files.CA, "--cert", same.Cert, "--key", same.Key}, exitFailed, []string{"403 Forbidden", "of a certificate of that CA"}},
		"secured":                    {[]string{"--http", https, "--cacert", files.CA, "--cert", files.Cert, "--key", files.Key}, exitDone, nil},
		"two, one reason":            {[]string{"--http", "127.0.0.1:1,127.0.0.1:2"}, exitFailed, []string{"127.0.0.1:1: ", "; 127.0.0.1:2: "}},
		"a URL":                      {[]string{"--http", "http://127.0.0.1:1/"}, exitUsage, []string{"use host:port", "cachectl kube status --help"}},
		"no port":                    {[]string{"--http", "host"}, exitUsage, []string{`--http "host": use host:port`}},
		"no address":                 {[]string{"--http", " "}, exitUsage, []string{"--http is empty"}},
		"no timeout":                 {[]string{"--timeout", "0s"}, exitUsage, []string{"--timeout (0s) must be positive"}},
		"certificate alone":          {[]string{"--cert", "x"}, exitUsage, []string{"go together"}},
		"a name without TLS":         {[]string{"--tls-server-name", "x"}, exitUsage, []string{"--tls-server-name is given without TLS"}},
		"an argument":                {[]string{"pods"}, exitUsage, []string{`unexpected argument "pods"`}},
		"a context's flags":          {[]string{"--context", "none"}, exitUsage, []string{`no context "none"`}},
		"the resource, near":         {[]string{"--htpt", "x"}, exitUsage, []string{"did you mean --http"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := cachectl(t, nil, append([]string{"kube", "status"}, c.args...)...)
			if code != c.code {
				t.Errorf("exit code %d, want %d: %s%s", code, c.code, out, errOut)
			}
			for _, want := range c.want {
				if !strings.Contains(errOut, want) {
					t.Errorf("no %q in:\n%s", want, errOut)
				}
			}
			if advice := strings.Count(errOut, "kubectl port-forward"); advice > 1 {
				t.Errorf("advice printed %d times:\n%s", advice, errOut)
			}
		})
	}
}

// The clock of completions does not run while they wait for a socket.
func TestKubeCompletesNodes(t *testing.T) {
	k := newKubeTier(t)
	at := k.address("kube-3")
	synctest.Test(t, func(t *testing.T) {
		env := map[string]string{"CACHECTL_KUBE_HTTP": at}
		if code, out, _ := cachectl(t, env, "__complete", "kube", "resources", "--node", ""); code != exitDone || out != "kube-1\nkube-2\nkube-3\n:4\n" {
			t.Errorf("exit code %d: %s", code, out)
		}
		if _, out, _ := cachectl(t, nil, "__complete", "kube", "resources", "--http", at+",127.0.0.1:1", "--node", ""); out != "kube-1\nkube-2\nkube-3\n:4\n" {
			t.Errorf("with an address without a node: %s", out)
		}
		if _, out, _ := cachectl(t, nil, "__complete", "kube", "resources", "--http", "127.0.0.1:1", "--node", ""); out != ":4\n" {
			t.Errorf("without any node: %s", out)
		}
		for _, flag := range []string{"--http", "--tls-server-name"} {
			if _, out, _ := cachectl(t, nil, "__complete", "kube", "status", flag, ""); out != ":4\n" {
				t.Errorf("%s: %s", flag, out)
			}
		}
		if _, out, _ := cachectl(t, nil, "__complete", "kube", ""); !strings.Contains(out, "resources\t") || !strings.Contains(out, "status\t") {
			t.Errorf("commands: %s", out)
		}
	})
}

// The variable applies to kube only: a flag overrides it, and an error names it.
func TestKubeVariable(t *testing.T) {
	k := newKubeTier(t)
	env := map[string]string{"CACHECTL_KUBE_HTTP": "127.0.0.1:1"}
	if code, _, errOut := cachectl(t, env, "kube", "status", "--http", k.address("kube-1")); code != exitDone {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	if code, _, errOut := cachectl(t, env, "kube", "status"); code != exitFailed || !strings.Contains(errOut, "127.0.0.1:1: ") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}
