package observability_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

const golden = "../../docs/metrics.md"

// Three nodes with a real etcd, TLS, gossip keys and a policy are watched, and one of
// them dies: what the other two then tell at /metrics is what docs/metrics.md says,
// neither more nor less.
func TestEveryMetricIsDocumented(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts three nodes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, credentials := startCluster(ctx, t)
	use(ctx, t, c, credentials)
	c.Nodes[2].Kill()
	if os.Getenv("UPDATE") != "" {
		write(ctx, t, c)
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text[strings.Index(string(text), tableHead):])
	for {
		got := table(scrape(ctx, t, c.Nodes[:2]))
		if got == want {
			return
		}
		select { // what has happened comes with time
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("UPDATE=1 go test ./test/observability writes %s anew (-want +got):\n%s\n%s", golden, cmp.Diff(want, got), c.Logs(1000))
		}
	}
}

// startCluster returns a cluster, and what its clients prove themselves with.
func startCluster(ctx context.Context, t *testing.T) (*nodetest.Cluster, *tls.Config) {
	t.Helper()
	args, credentials := secured(t)
	e := etcdtest.Start(t)
	for i := range 64 { // shards are cut between keys
		if _, err := e.Client().Put(ctx, fmt.Sprintf("/d%d/k%d", i%8, i), "first"); err != nil {
			t.Fatal(err)
		}
	}
	bin, err := nodetest.Build(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := nodetest.Start(ctx, nodetest.Config{
		Binary: bin, Dir: t.TempDir(), Etcd: e.Endpoint(),
		// All nodes own shards: the death of one is felt by the others.
		Args: append(args, "--shards", "8", "--replicas", "2", "--auto-owners=false", "--verify-interval", "1s"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c, credentials
}

// secured returns the arguments of nodes with all that is read again from files, and
// what a client proves itself with that may do everything. The HTTP port is open.
func secured(t *testing.T) (args []string, credentials *tls.Config) {
	t.Helper()
	ca := certtest.NewCA(t, "all")
	server := certtest.NewFiles(t, ca.Issue(t, "server"), ca)
	node := certtest.NewFiles(t, ca.Issue(t, "node", "spiffe://shardwatch.test/node"), ca)
	keys, policy := filepath.Join(t.TempDir(), "gossip.key"), filepath.Join(t.TempDir(), "policy.yaml")
	const everything = "roles:\n  all: [{verbs: [read, watch, write], all: true}, {verbs: [operator:read, operator:write]}]\n  look: [{verbs: [operator:read]}]\n" +
		"identities:\n  - {match: [\"cn:ops\"], roles: [all]}\n  - {match: [anonymous], roles: [look]}\n"
	for file, text := range map[string]string{keys: base64.StdEncoding.EncodeToString(make([]byte, 32)), policy: everything} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args = []string{
		"--tls-cert", server.Cert, "--tls-key", server.Key, "--tls-client-ca", server.CA,
		"--peer-tls-cert", node.Cert, "--peer-tls-key", node.Key, "--peer-tls-ca", node.CA,
		"--gossip-key-file", keys, "--policy", policy,
	}
	return args, &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: certtest.Pool(ca), Certificates: []tls.Certificate{ca.Issue(t, "ops").Pair},
	}
}

// use reads, writes and watches by both APIs at each node until the test ends.
func use(ctx context.Context, t *testing.T, c *nodetest.Cluster, credentials *tls.Config) {
	t.Helper()
	for _, n := range c.Nodes[:2] {
		own, err := client.New(client.Config{Endpoints: []string{n.Client}, TLS: credentials})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = own.Close() })
		w := own.Watch(ctx, client.Range{}, client.WithState())
		if _, err := w.Next(ctx); err != nil { // the state: what is put from now on is an event
			t.Fatal(err)
		}
		go func() {
			for range w.Updates() { // until the client is closed
			}
		}()
		etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{n.Client}, DialTimeout: 10 * time.Second, TLS: credentials})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = etcd.Close() })
		seen := etcd.Watch(ctx, "/", clientv3.WithPrefix())
		put, err := etcd.Put(ctx, "/d1/new", "value")
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-seen:
		case <-ctx.Done():
			t.Fatal("the watch brings nothing")
		}
		traced(ctx, t, own, put.Header.Revision)
	}
}

// traced waits until the nodes together know the whole way of a revision: from
// etcd to a node, from there to another one, and to watches.
func traced(ctx context.Context, t *testing.T, c *client.Client, revision int64) {
	t.Helper()
	var direct, followed, watches int64
	for {
		members, err := admin.New(c).Members(ctx)
		if err != nil {
			t.Fatal(err)
		}
		direct, followed, watches = 0, 0, 0
		for _, m := range members {
			r, err := admin.New(c).TraceRevision(ctx, m.ClientAddress, revision)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range r.Hops {
				switch {
				case h.Source == admin.SourceEtcd:
					direct++
				case h.SourceNode != "":
					followed++
				}
				if h.Applied < h.Received {
					t.Errorf("applied before it was received: %+v", h)
				}
			}
			watches += r.Watches.Times
		}
		if direct >= 1 && followed >= 1 && watches >= 2 {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("revision %d: %d from etcd, %d from nodes, to %d watches", revision, direct, followed, watches)
		}
	}
}

// scrape returns what nodes tell, by name: of each metric all labels.
func scrape(ctx context.Context, t *testing.T, nodes []*nodetest.Node) map[string]*dto.MetricFamily {
	t.Helper()
	out := map[string]*dto.MetricFamily{}
	for _, n := range nodes {
		families, err := metricsAt(ctx, n.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range families {
			if of := out[name]; of != nil {
				of.Metric = append(of.Metric, f.GetMetric()...)
			} else {
				out[name] = f
			}
		}
	}
	return out
}

// metricsAt returns what the node with an address of its HTTP port tells.
func metricsAt(ctx context.Context, address string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(resp.Body)
}

const tableHead = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n"

// table shows the metrics of nodes, not those of Go and the process.
func table(families map[string]*dto.MetricFamily) string {
	var rows []string
	for name, f := range families {
		if !strings.HasPrefix(name, "shardwatch_") {
			continue
		}
		labels := map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels["`"+l.GetName()+"`"] = true
			}
		}
		var names []string
		for l := range labels {
			names = append(names, l)
		}
		slices.Sort(names)
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n",
			name, strings.ToLower(f.GetType().String()), unit(name), strings.Join(names, ", "), f.GetHelp()))
	}
	slices.Sort(rows)
	return tableHead + strings.Join(rows, "")
}

func unit(name string) string {
	switch name = strings.TrimSuffix(name, "_total"); {
	case strings.HasSuffix(name, "_seconds"):
		return "seconds"
	case strings.HasSuffix(name, "_bytes"):
		return "bytes"
	case strings.HasSuffix(name, "_ratio"):
		return "0 to 1"
	}
	return "number"
}

// write writes the table once it has not grown for a while.
func write(ctx context.Context, t *testing.T, c *nodetest.Cluster) {
	t.Helper()
	const quiet = 15 * time.Second
	last, since := "", time.Now()
	for time.Since(since) < quiet {
		if now := table(scrape(ctx, t, c.Nodes[:2])); now != last {
			last, since = now, time.Now()
		}
		time.Sleep(time.Second)
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), tableHead)
	if err := os.WriteFile(golden, []byte(head+last), 0o600); err != nil {
		t.Fatal(err)
	}
}
