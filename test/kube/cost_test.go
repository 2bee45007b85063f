package kube_test

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

// CI runs a few watches and checks that all of them get all events; make bench-kube runs many.
var (
	costPods     = flag.Int("cost.pods", 60, "pods of TestCost")
	costAll      = flag.Int("cost.all", 5, "watches of all pods of TestCost, of each encoding")
	costKubelets = flag.Int("cost.kubelets", 30, "watches of the pods of one node of TestCost")
	costWrites   = flag.Int("cost.writes", 20, "writes of TestCost while there are watches")
	costRate     = flag.Int("cost.rate", 20, "writes in a second of TestCost")
	costAtOnce   = flag.Int("cost.at-once", 1, "writes of TestCost that are made together, as those of a rollout are")
	costLists    = flag.Int("cost.lists", 2, "lists of all pods of TestCost, of each encoding")
	costSettle   = flag.Duration("cost.settle", 10*time.Millisecond, "time from a collection of garbage to a reading of memory of TestCost")
	costBeside   = flag.String("cost.beside", "", "other cachenode programs, with commas, which TestCost measures before the one that is built here")
	costProfiles = flag.String("cost.profiles", "", "folder for CPU profiles of TestCost while events are delivered")
)

// costSide is a server of the watches of TestCost.
type costSide struct {
	name    string
	url     string
	serving func() *proc.Process
	// page returns a page of the serving process, which has Go's profiler.
	page func(ctx context.Context, path string) (string, error)
	// behind is the apiserver behind a node, or nil.
	behind func() *proc.Process
}

// costRun is one run of TestCost.
type costRun struct {
	c     *cluster
	patch func(ctx context.Context, pod int) error
	turn  atomic.Int64
	sides []costSide
	out   *tabwriter.Writer
}

// TestCost runs the same watches and lists at an apiserver alone, and at a node in front of another
// apiserver, while pods change through a third one. With -cost.beside it also uses nodes of other
// programs. It checks that each watch gets its events, and reports CPU time and memory of each
// side.
func TestCost(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	c := newCluster(t)
	third := c.apiserver(t)
	pods := c.clients(t, third.url, func(cfg *rest.Config) { cfg.ContentType = object.Protobuf.MediaType() }).CoreV1().Pods("default")
	each(t, *costPods, func(i int) error {
		_, err := pods.Create(ctx, costPod(i), metav1.CreateOptions{})
		return err
	})
	alone, behind := c.apiserver(t), c.apiserver(t)
	args := append(c.proxy(t), "--pprof", "--kube-preload", "pods.v1,pods.v1/json")
	node := func(name, at, bin string) costSide {
		n := c.nodeOf(t, bin, at, []string{behind.url}, args...)
		return costSide{name: name, url: "https://" + n.kube, serving: func() *proc.Process { return n.process }, page: n.get, behind: func() *proc.Process { return behind.process }}
	}
	var text strings.Builder
	r := &costRun{c: c, out: tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0), sides: []costSide{
		{name: "apiserver", url: alone.url, serving: func() *proc.Process { return alone.process }, page: func(ctx context.Context, path string) (string, error) {
			return c.page(ctx, alone.url+path)
		}},
	}}
	for i, bin := range strings.FieldsFunc(*costBeside, func(r rune) bool { return r == ',' }) {
		r.sides = append(r.sides, node(filepath.Base(bin), fmt.Sprintf("beside-%d", i), bin))
	}
	r.sides = append(r.sides, node("node", "x", ""))
	r.patch = func(ctx context.Context, i int) error {
		_, err := pods.Patch(ctx, costPodName(i), types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"turn":"%d"}}}`, r.turn.Add(1)), metav1.PatchOptions{})
		return err
	}
	fmt.Fprint(r.out, "\n| watches \t| side \t| events \t| CPU \t| of an event, µs \t| CPU of the same writes without watches \t| CPU of the apiserver behind \t| memory of a watch at rest \t|\n")
	for _, side := range r.sides {
		// First: its memory must be from processes that have served nothing else.
		r.watches(ctx, t, side, "of one node's pods", object.Protobuf, *costKubelets, func(i int) string { return "spec.nodeName=" + costNode(i) })
		r.watches(ctx, t, side, "of all pods, protobuf", object.Protobuf, *costAll, func(int) string { return "" })
		r.watches(ctx, t, side, "of all pods, JSON", object.JSON, *costAll, func(int) string { return "" })
		r.lists(ctx, t, side)
	}
	_ = r.out.Flush() // to memory
	t.Log(text.String())
}

func costPodName(i int) string { return fmt.Sprintf("pod-%d", i) }

// costNode returns the node of a pod.
func costNode(i int) string { return fmt.Sprintf("node-%d", i%*costKubelets) }

func costPod(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: costPodName(i), Labels: map[string]string{"app": fmt.Sprintf("app-%d", i%20), "tier": "backend", "turn": "0"},
			Annotations: map[string]string{"config.example.com/checksum": strings.Repeat("0123456789abcdef", 8)},
		},
		Spec: corev1.PodSpec{
			NodeName: costNode(i),
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example.com/team/backend:v1.2.3", Args: []string{"--listen=:8080", "--log-level=info"},
				Env: []corev1.EnvVar{{Name: "REGION", Value: "eu-central-1"}, {Name: "SHARD", Value: fmt.Sprint(i)}},
			}},
		},
	}
}

// each calls fn for 0 to n-1, several concurrently.
func each(t *testing.T, n int, fn func(i int) error) {
	t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := fn(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// watching are open watches.
type watching struct {
	events []atomic.Int64
	all    sync.WaitGroup
	stop   context.CancelFunc
}

// open opens watches of pods from a version, each on a separate connection.
func (r *costRun) open(ctx context.Context, t *testing.T, side costSide, enc object.Encoding, since string, from, to int, selector func(i int) string) *watching {
	t.Helper()
	w := &watching{events: make([]atomic.Int64, to-from)}
	ctx, w.stop = context.WithCancel(ctx)
	each(t, to-from, func(i int) error {
		resp, err := r.get(ctx, r.client(), side.url+"/api/v1/pods?watch=1&allowWatchBookmarks=1&resourceVersion="+since+"&fieldSelector="+selector(from+i), enc)
		if err != nil {
			return err
		}
		w.all.Go(func() {
			defer resp.Body.Close()
			for frames := object.NewFrames(enc, resp.Body, 1<<20); ; {
				e, err := frames.Next()
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("a watch of %s ends: %v", side.name, err)
					}
					return
				}
				if e.Type != object.Bookmark {
					w.events[i].Add(1)
				}
			}
		})
		return nil
	})
	return w
}

// client returns a client with a separate connection for one watch, with client-go's ping settings. The
// connection ends with the watch, so its pings do not count in later rows.
func (r *costRun) client() *http.Client {
	return &http.Client{Transport: net.SetTransportDefaults(&http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: certtest.Pool(r.c.ca)}, DisableKeepAlives: true,
	})}
}

func (r *costRun) get(ctx context.Context, client *http.Client, url string, enc object.Encoding) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.c.token)
	req.Header.Set("Accept", enc.WatchType())
	req.Header.Set("Accept-Encoding", "identity")
	if !strings.Contains(url, "watch=1") {
		req.Header.Set("Accept", enc.MediaType())
	}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return resp, err
}

// version returns the version of a list.
func (r *costRun) version(ctx context.Context, t *testing.T, side costSide) string {
	t.Helper()
	resp, err := r.get(ctx, r.c.client, side.url+"/api/v1/pods?limit=1", object.Protobuf)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := object.ParseList(object.Protobuf, body)
	if err != nil {
		t.Fatal(err)
	}
	return list.ResourceVersion
}

func cpuOf(t *testing.T, p func() *proc.Process) time.Duration {
	t.Helper()
	if p == nil {
		return 0
	}
	return used(t, []*proc.Process{p()})
}

// footprint is the memory of a process, in bytes.
type footprint struct {
	resident int64
	live     int64 // of Go's heap and stacks
}

// footprintOf returns the memory of an idle process: the minimum of three readings, each some time
// after a full garbage collection. The second collection empties Go's pools.
func footprintOf(ctx context.Context, t *testing.T, side costSide) (least footprint) {
	t.Helper()
	for i := range 3 {
		text, err := side.page(ctx, "/debug/pprof/heap?gc=1&debug=1")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(*costSettle) // Go returns memory meanwhile
		var now footprint
		if now.resident, err = proc.Memory([]int{side.serving().PID()}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			for _, name := range []string{"# HeapInuse = %d", "# Stack = %d"} {
				var n int64
				if found, _ := fmt.Sscanf(line, name, &n); found == 1 { // other lines have other names
					now.live += n
				}
			}
		}
		if now.live == 0 {
			t.Fatalf("%s does not say how much of its heap is in use", side.name)
		}
		if i == 0 {
			least = now
		}
		least = footprint{min(least.resident, now.resident), min(least.live, now.live)}
	}
	return least
}

// growth returns the medians of the memory per watch over several steps, in KiB, and the extremes
// of its resident memory.
func growth(at []footprint, watches int) string {
	var resident, live []float64
	for i := range len(at) - 1 {
		resident = append(resident, float64(at[i+1].resident-at[i].resident)/1024/float64(watches))
		live = append(live, float64(at[i+1].live-at[i].live)/1024/float64(watches))
	}
	slices.Sort(resident)
	slices.Sort(live)
	return fmt.Sprintf("resident %.1f KiB (%.1f to %.1f), live %.1f KiB (%.1f to %.1f)", resident[len(resident)/2], resident[0], resident[len(resident)-1],
		live[len(live)/2], live[0], live[len(live)-1])
}

// costSteps is the number of steps in which the measured watches are opened.
const costSteps = 5

// writes changes pods, with the number and the rate of the flags.
func (r *costRun) writes(ctx context.Context, t *testing.T, times int) {
	t.Helper()
	often := time.NewTicker(time.Second * time.Duration(*costAtOnce) / time.Duration(*costRate*times))
	defer often.Stop()
	for done := 0; done < *costWrites*times; done += *costAtOnce {
		each(t, min(*costAtOnce, *costWrites*times-done), func(i int) error { return r.patch(ctx, (done+i)%*costPods) })
		<-often.C
	}
}

// watches opens watches, and changes pods without and with them. It measures the memory of watches with
// a field selector.
func (r *costRun) watches(ctx context.Context, t *testing.T, side costSide, name string, enc object.Encoding, many int, selector func(i int) string) {
	t.Helper()
	times := 1
	if selector(0) != "" {
		times = 5 // an event is for one watch
	}
	began := cpuOf(t, side.serving)
	r.writes(ctx, t, times)
	without := cpuOf(t, side.serving) - began
	since := r.version(ctx, t, side)
	var memory string
	var open []*watching
	if times == 1 {
		open = append(open, r.open(ctx, t, side, enc, since, 0, many, selector))
	} else {
		at := []footprint{footprintOf(ctx, t, side)}
		for i := range costSteps {
			open = append(open, r.open(ctx, t, side, enc, since, many*i/costSteps, many*(i+1)/costSteps, selector))
			at = append(at, footprintOf(ctx, t, side))
		}
		memory = growth(at, many/costSteps)
	}
	profiled := r.profile(ctx, t, side, name)
	serving, behind := cpuOf(t, side.serving), cpuOf(t, side.behind)
	r.writes(ctx, t, times)
	want := int64(*costWrites * times)
	if selector(0) == "" {
		want *= int64(many)
	}
	var got int64
	eventually(ctx, t, "all events", func() error {
		got = 0
		for _, w := range open {
			for i := range w.events {
				got += w.events[i].Load()
			}
		}
		if got < want {
			return fmt.Errorf("%d events, want %d", got, want)
		}
		return nil
	})
	serving, behind = cpuOf(t, side.serving)-serving, cpuOf(t, side.behind)-behind
	if got != want {
		t.Errorf("%s %s: %d events, want %d", side.name, name, got, want)
	}
	fmt.Fprintf(r.out, "| %d %s \t| %s \t| %d \t| %.2f s \t| %.1f \t| %.2f s \t| %.2f s \t| %s \t|\n", many, name, side.name, got, serving.Seconds(),
		float64((serving-without).Microseconds())/float64(got), without.Seconds(), behind.Seconds(), memory)
	profiled()
	for _, w := range open {
		w.stop()
		w.all.Wait()
	}
}

// profile takes a CPU profile of a side during changes of pods, if the flags request it. The
// returned function waits for the profile's end.
func (r *costRun) profile(ctx context.Context, t *testing.T, side costSide, name string) func() {
	t.Helper()
	if *costProfiles == "" {
		return func() {}
	}
	var done sync.WaitGroup
	done.Go(func() {
		text, err := side.page(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, *costWrites / *costRate)))
		if err == nil {
			file := strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(side.name + "-" + name + ".pprof")
			err = os.WriteFile(filepath.Join(*costProfiles, file), []byte(text), 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return done.Wait
}

// page returns a page of an apiserver.
func (c *cluster) page(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return string(body), err
}

// lists lists all pods several times.
func (r *costRun) lists(ctx context.Context, t *testing.T, side costSide) {
	t.Helper()
	client := &http.Client{Transport: r.c.transport(t)}
	for _, enc := range []object.Encoding{object.Protobuf, object.JSON} {
		began := cpuOf(t, side.serving)
		var bytes int64
		for range *costLists {
			resp, err := r.get(ctx, client, side.url+"/api/v1/pods?resourceVersion=0", enc)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			bytes += n
		}
		cpu := cpuOf(t, side.serving) - began
		fmt.Fprintf(r.out, "| list, %s \t| %s \t| %d lists of %.1f MB \t| %.2f s \t| %.1f ms a list \t| \t| \t| \t|\n", enc, side.name, *costLists,
			float64(bytes)/1e6/float64(*costLists), cpu.Seconds(), cpu.Seconds()*1000/float64(*costLists))
	}
}
