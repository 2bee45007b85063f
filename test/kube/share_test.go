package kube_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/freeport"
)

// shared starts nodes that share their watches over mutual TLS.
func (c *cluster) shared(t *testing.T, servers, names []string, args ...string) (all []*node) {
	t.Helper()
	ports, err := freeport.Take(2 * len(names))
	if err != nil {
		t.Fatal(err)
	}
	between := certtest.NewCA(t, "nodes")
	for i, name := range names {
		own := certtest.NewFiles(t, between.Issue(t, name, "nodes.internal"), between)
		all = append(all, c.node(t, name, servers, append(append(c.proxy(t),
			"--peer-listen", ports[2*i], "--gossip-listen", ports[2*i+1], "--join", ports[1]+","+ports[2*len(names)-1], "--insecure=gossip",
			"--peer-tls-cert", own.Cert, "--peer-tls-key", own.Key, "--peer-tls-ca", own.CA), args...)...))
	}
	return all
}

// figure returns a metric of a node; -1: it does not answer.
func (n *node) figure(ctx context.Context, name string) float64 {
	text, err := n.get(ctx, "/metrics")
	if err != nil {
		return -1
	}
	return value(text, name)
}

// watchesAt returns the number of an apiserver's watches of the config maps of all namespaces. It
// has some watches of single ones itself.
func (c *cluster) watchesAt(ctx context.Context, t *testing.T, at *apiserver) float64 {
	t.Helper()
	text, err := c.clients(t, at.url, nil).RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return -1
	}
	return value(string(text), "apiserver_longrunning_requests", `resource="configmaps"`, `verb="WATCH"`, `scope="cluster"`)
}

// oneWatchEach waits until the apiserver has one watch for each encoding, and returns the nodes
// with these watches.
func (c *cluster) oneWatchEach(ctx context.Context, t *testing.T, at *apiserver, nodes ...*node) (owners []*node) {
	t.Helper()
	eventually(ctx, t, "one watch for each encoding at the apiserver", func() error {
		owners = nil
		for _, n := range nodes {
			if feeds := n.figure(ctx, "shardwatch_kube_resources"); feeds != 2 {
				return fmt.Errorf("%s has copies of %v resources, want 2", n.name, feeds)
			}
			if direct := n.figure(ctx, "shardwatch_kube_direct_resources"); direct > 0 {
				owners = append(owners, n)
			}
		}
		if watches := c.watchesAt(ctx, t, at); watches != 2 {
			return fmt.Errorf("%v watches, of %d nodes", watches, len(owners))
		}
		return nil
	})
	return owners
}

// TestOneWatchForAllNodes runs informers in both encodings at three nodes. The apiserver has one
// watch for each encoding. The owner of one is killed and restarted: the others continue from their
// versions, so no informer lists again, and none misses an event.
func TestOneWatchForAllNodes(t *testing.T) {
	c := newCluster(t)
	at := c.apiserver(t)
	writer := c.clients(t, at.url, nil)
	r := rand.New(rand.NewPCG(17, 18))
	churn(t, writer, r, 40)
	nodes := c.shared(t, []string{at.url}, []string{"a", "b", "c"}, "--drain-timeout", "5s")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var lists listing
	all := c.informersWith(ctx, t, balancer(t, nodes...), 4, func(cfg *rest.Config) {
		cfg.WrapTransport = lists.wrap
		cfg.Dial = new(net.Dialer).DialContext // a separate connection: they use all nodes
	})
	first := lists.n.Load()
	if first < int64(len(all)) {
		t.Fatalf("%d lists for %d informers: they are not counted", first, len(all))
	}
	settled := func(after string) []*node {
		t.Helper()
		for _, n := range all {
			n.equals(ctx, t, writer)
		}
		owners := c.oneWatchEach(ctx, t, at, nodes...)
		t.Logf("after %s, %d informers have two watches at the apiserver, lists again: %d", after, len(all), lists.n.Load()-first)
		return owners
	}
	owners := settled("the start")
	for range 2 {
		owner := owners[0]
		churn(t, writer, r, 30)
		owner.kill()
		churn(t, writer, r, 30)
		for _, n := range all {
			n.equals(ctx, t, writer)
		}
		for _, n := range nodes {
			if lost := n.figure(ctx, "shardwatch_kube_window_losses_total"); lost > 0 {
				t.Errorf("%s has lost %v windows with the owner", n.name, lost)
			}
		}
		owner.start(t)
		owners = settled("the death of " + owner.name)
	}
	owners[0].drain()
	churn(t, writer, r, 30)
	owners[0].start(t)
	settled("the restart of " + owners[0].name)
	if again := lists.n.Load() - first; again != 0 {
		t.Errorf("%d lists by %d informers", again, len(all))
	}
}
