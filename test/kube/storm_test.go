package kube_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
)

// CI runs a small storm at the tier; make bench-kube runs a large one, and one at apiservers only.
var (
	stormInformers = flag.Int("storm.informers", 20, "reflectors of TestStorms")
	stormObjects   = flag.Int("storm.objects", 60, "config maps of TestStorms")
	stormCycles    = flag.Int("storm.cycles", 1, "how often TestStorms has each fault")
	stormRate      = flag.Int("storm.rate", 20, "writes in a second of TestStorms")
	stormSides     = flag.String("storm.sides", "tier", "what the reflectors of TestStorms connect to, with commas: tier (two nodes by themselves), shared (three with --join), apiservers")
	stormFaults    = flag.String("storm.faults", "", "faults of TestStorms that contain this")
)

// objectBytes is the size of a config map's data in storms.
const objectBytes = 1200

// writer writes config maps through an apiserver that no fault touches.
type writer struct {
	maps typed.ConfigMapInterface
	n    int

	mu    sync.Mutex // held during a write
	r     *rand.Rand // guarded by mu
	there []bool     // guarded by mu; whether each config map exists
}

func (w *writer) configMap(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", i), Labels: map[string]string{"parity": strconv.Itoa(w.r.IntN(2))}},
		Data:       map[string]string{"value": strings.Repeat(strconv.Itoa(w.r.IntN(10)), objectBytes)},
	}
}

// fill creates the config maps.
func (w *writer) fill(ctx context.Context, t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.n {
		if _, err := w.maps.Create(ctx, w.configMap(i), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.there[i] = true
	}
}

// write changes, deletes or creates a config map.
func (w *writer) write(ctx context.Context) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.r.IntN(w.n)
	m := w.configMap(i)
	switch {
	case !w.there[i]:
		_, err = w.maps.Create(ctx, m, metav1.CreateOptions{})
		w.there[i] = true
	case w.r.IntN(5) == 0:
		err = w.maps.Delete(ctx, m.Name, metav1.DeleteOptions{})
		w.there[i] = false
	default:
		_, err = w.maps.Update(ctx, m, metav1.UpdateOptions{})
	}
	return err
}

// run writes at a rate until ctx ends.
func (w *writer) run(ctx context.Context, t *testing.T, rate int) {
	often := time.NewTicker(time.Second / time.Duration(rate))
	defer often.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-often.C:
			if err := w.write(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("the writer: %v", err)
			}
		}
	}
}

// mark writes an object that matches all reflectors, and returns its version.
func (w *writer) mark(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mark", Labels: map[string]string{"parity": "1"}}, Data: map[string]string{"at": time.Now().String()}}
	m, err := w.maps.Update(ctx, m, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		m.Name, m.Labels = "mark", map[string]string{"parity": "1"}
		m, err = w.maps.Create(ctx, m, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	version, err := strconv.ParseInt(m.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// fault is one failure of a side.
type fault struct {
	name  string
	steps []step
	// whole: an apiserver or a node keeps the history, so that each reflector gets each event.
	// Otherwise a difference omits versions that later ones replaced.
	whole bool
}

// step is a part of a fault.
type step struct {
	do func()
	// survives: the reflectors continue after this step.
	survives bool
}

// storm is one side of TestStorms.
type storm struct {
	c        *cluster
	direct   *kubernetes.Clientset // of the writer's apiserver
	w        *writer
	serving  func() time.Duration // CPU time of the processes that the reflectors connect to
	behind   func() time.Duration // CPU time of the apiservers behind the tier
	faults   []fault
	audience *audience
	witness  *audience // at the writer's apiserver: one reflector of each kind
	fewer    int       // missing events of the audience compared with the witness, before the next fault
	rows     map[string][]row
}

// row is the cost of one fault.
type row struct {
	lists           int
	wrong           []string
	left            int           // events that the reflectors lacked compared with the witness
	after           time.Duration // until all reflectors had the newest version, maximum over the steps
	bytes           int64
	events          int
	serving, behind time.Duration
}

// TestStorms runs reflectors at nodes, or at two apiservers, with each fault while a writer
// continues at a third apiserver. At the tier no reflector lists again, all of them have each
// object of the writer's apiserver at its version, and each has as many events as a reflector
// there, as long as an apiserver or a node has the history.
func TestStorms(t *testing.T) {
	for side := range strings.SplitSeq(*stormSides, ",") {
		t.Run(side, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := newStorm(ctx, t, side)
			s.run(ctx, t)
			s.report(t)
			for _, f := range s.faults {
				for _, r := range s.rows[f.name] {
					if side != "apiservers" && r.lists > 0 {
						t.Errorf("%s: %d lists by %d reflectors", f.name, r.lists, len(s.audience.readers))
					}
					if side != "apiservers" && f.whole && r.left != 0 {
						t.Errorf("%s: %d events are missing", f.name, r.left)
					}
					if len(r.wrong) > 0 {
						t.Errorf("%s: %s", f.name, strings.Join(r.wrong[:min(5, len(r.wrong))], "\n"))
					}
				}
			}
		})
	}
}

// stormArgs returns the arguments of the nodes.
var stormArgs = []string{"--kube-preload", "configmaps.v1,configmaps.v1/json", "--drain-timeout", "5s"}

func newStorm(ctx context.Context, t *testing.T, side string) *storm {
	t.Helper()
	c := newCluster(t)
	beside, a, b := c.apiserver(t), c.apiserver(t), c.apiserver(t)
	s := &storm{c: c, direct: c.clients(t, beside.url, nil), rows: map[string][]row{}}
	s.w = &writer{maps: s.direct.CoreV1().ConfigMaps("default"), n: *stormObjects, r: rand.New(rand.NewPCG(21, 22)), there: make([]bool, *stormObjects)}
	s.w.fill(ctx, t)
	apiservers := func() time.Duration { return a.cpu(t) + b.cpu(t) }
	started := func(all ...interface{ start(*testing.T) }) (steps []step) {
		for _, x := range all {
			steps = append(steps, step{func() { x.start(t) }, true})
		}
		return steps
	}
	end := func() { a.kill(); b.kill() }
	s.faults = []fault{
		{"no fault", []step{{func() { s.writes(ctx, t, 50) }, true}}, true},
		{"one apiserver killed", append([]step{{a.kill, true}}, started(a)...), true},
		{"all apiservers killed", append([]step{{end, false}}, started(a, b)...), false},
		{"compaction while all apiservers are down", append([]step{{func() { end(); s.writes(ctx, t, 50); s.c.compact(ctx, t) }, false}}, started(a, b)...), false},
	}
	var url string
	nodes := func(nodes ...*node) string {
		s.serving, s.behind = func() (sum time.Duration) {
			for _, n := range nodes {
				sum += n.cpu(t)
			}
			return sum
		}, apiservers
		killed := 0
		victim := func() *node { return nodes[killed%len(nodes)] }
		var restart []step
		for _, n := range nodes {
			restart = append(append(restart, step{n.drain, true}), started(n)...)
		}
		s.faults = append(s.faults,
			fault{"node killed", []step{{func() { victim().kill() }, true}, {func() { victim().start(t); killed++ }, true}}, true},
			fault{"rolling restart", restart, true})
		return balancer(t, nodes...)
	}
	switch side {
	case "apiservers":
		s.serving, s.behind = apiservers, func() time.Duration { return 0 }
		restart := append(append([]step{{a.drain, true}}, started(a)...), append([]step{{b.drain, true}}, started(b)...)...)
		s.faults = append(s.faults, fault{"rolling restart", restart, true})
		url = balance(t, strings.TrimPrefix(a.url, "https://"), strings.TrimPrefix(b.url, "https://"))
	case "shared":
		url = nodes(c.shared(t, []string{a.url, b.url}, []string{"x", "y", "z"}, stormArgs...)...)
	default:
		args := append(c.proxy(t), stormArgs...)
		url = nodes(c.node(t, "x", []string{a.url, b.url}, args...), c.node(t, "y", []string{a.url, b.url}, args...))
	}
	mark := s.w.mark(ctx, t)
	began := time.Now()
	s.audience = c.audience(ctx, t, url, *stormInformers)
	s.audience.await(ctx, t, "mark", mark)
	s.witness = c.audience(ctx, t, beside.url, kindsOfReaders)
	s.witness.await(ctx, t, "mark", mark)
	s.fewer = s.audience.fewer(s.witness)
	t.Logf("%d reflectors have %d objects each after %v", *stormInformers, *stormObjects, time.Since(began).Round(time.Millisecond))
	return s
}

// writes writes the given number of times.
func (s *storm) writes(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for range n {
		if err := s.w.write(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs each fault in each cycle, with a writer.
func (s *storm) run(ctx context.Context, t *testing.T) {
	ctx, stop := context.WithCancel(ctx)
	var writing sync.WaitGroup
	writing.Go(func() { s.w.run(ctx, t, *stormRate) })
	defer writing.Wait()
	defer stop()
	for range *stormCycles {
		for _, f := range s.faults {
			if strings.Contains(f.name, *stormFaults) {
				s.have(ctx, t, f)
			}
		}
	}
}

// have runs one fault, and records its cost.
func (s *storm) have(ctx context.Context, t *testing.T, f fault) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var r row
	lists, events := s.audience.sum()
	bytes, serving, behind := s.audience.bytes.Load(), s.serving(), s.behind()
	for _, step := range f.steps {
		step.do()
		if step.survives {
			mark, began := s.w.mark(ctx, t), time.Now()
			s.audience.await(ctx, t, "mark", mark)
			r.after = max(r.after, time.Since(began))
		}
	}
	s.w.mu.Lock() // stops the writer
	defer s.w.mu.Unlock()
	mark := s.w.mark(ctx, t)
	s.witness.await(ctx, t, "mark", mark)
	s.audience.await(ctx, t, "mark", mark)
	r.wrong = s.audience.compare(ctx, t, s.direct)
	fewer := s.audience.fewer(s.witness)
	r.left, s.fewer = fewer-s.fewer, fewer
	nowLists, nowEvents := s.audience.sum()
	r.lists, r.events, r.bytes = nowLists-lists, nowEvents-events, s.audience.bytes.Load()-bytes
	r.serving, r.behind = s.serving()-serving, s.behind()-behind
	s.rows[f.name] = append(s.rows[f.name], r)
	t.Logf("%s: %d lists, %d wrong, %d events left out, caught up after %v, failed requests: %v", f.name, r.lists, len(r.wrong), r.left, r.after.Round(time.Millisecond), s.audience.failed())
}

// report prints a table of all cycles: sums of lists, wrong stores and omitted events, the longest
// and the median time, and means of the others.
func (s *storm) report(t *testing.T) {
	t.Helper()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
	fmt.Fprintf(table, "\n| fault \t| lists \t| wrong stores \t| events left out \t| caught up, median \t| longest \t| events \t| MB \t| CPU \t| CPU of apiservers behind \t|\n")
	for _, f := range s.faults {
		rows := s.rows[f.name]
		if len(rows) == 0 {
			continue
		}
		var sum row
		for _, r := range rows {
			sum.lists += r.lists
			sum.wrong = append(sum.wrong, r.wrong...)
			sum.left += r.left
			sum.events += r.events
			sum.bytes += r.bytes
			sum.serving += r.serving
			sum.behind += r.behind
		}
		slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.after, b.after) })
		n := len(rows)
		fmt.Fprintf(table, "| %s \t| %d of %d \t| %d \t| %d \t| %.2f s \t| %.2f s \t| %d \t| %.1f \t| %.2f s \t| %.2f s \t|\n", f.name, sum.lists, n*len(s.audience.readers), len(sum.wrong), sum.left,
			rows[n/2].after.Seconds(), rows[n-1].after.Seconds(), sum.events/n, float64(sum.bytes)/1e6/float64(n), sum.serving.Seconds()/float64(n), sum.behind.Seconds()/float64(n))
	}
	_ = table.Flush() // to memory
	t.Log(text.String())
}
