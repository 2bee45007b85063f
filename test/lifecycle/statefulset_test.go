package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// The settings of deploy/k8s.
const (
	drainTimeout = 45 * time.Second
	gracePeriod  = 75 * time.Second
	headless     = "shardwatch-nodes"
)

// pace has the times of Kubernetes, which a short test reduces.
type pace struct {
	preStop  time.Duration
	minReady time.Duration // a pod is available after it was ready for this long
}

// patience bounds each wait for a required event. It is no promise: it ends a test that hangs.
const patience = 2 * time.Minute

// statefulSet acts on processes as the StatefulSet's controller and the kubelets act on pods. Its
// methods belong to one goroutine.
type statefulSet struct {
	t       *testing.T
	network *network
	service *service
	etcd    string // its endpoint
	dir     string // of volumes and logs, by pod name
	image   string // the program of new pods
	pace    pace

	mu   sync.Mutex
	pods map[int]*pod // guarded by mu; by ordinal
}

// pod is one instance of a pod.
type pod struct {
	name  string
	image string
	host  *host
	proc  *os.Process
	ended chan struct{} // closed when the process is gone

	ready       bool // guarded by statefulSet.mu
	terminating bool // guarded by statefulSet.mu
}

func podName(ordinal int) string { return "shardwatch-" + strconv.Itoa(ordinal) }

// volume is the data that outlives a pod.
func (s *statefulSet) volume(ordinal int) string { return filepath.Join(s.dir, podName(ordinal)) }

// create starts the pod of an ordinal with its name, its volume and a new address.
func (s *statefulSet) create(ctx context.Context, ordinal int) error {
	h, err := s.network.newHost(ctx)
	if err != nil {
		return err
	}
	p := &pod{name: podName(ordinal), image: s.image, host: h, ended: make(chan struct{})}
	log, err := os.OpenFile(s.volume(ordinal)+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command("ip", "netns", "exec", h.space, s.image, "run")
	cmd.Env = append(os.Environ(),
		"CACHENODE_NAME="+p.name, "CACHENODE_DATA_DIR="+s.volume(ordinal), "CACHENODE_ADVERTISE="+h.ip,
		"CACHENODE_BOOTSTRAP_EXPECT=3", "CACHENODE_JOIN="+headless+":7946", "CACHENODE_DRAIN_TIMEOUT="+drainTimeout.String(),
		"CACHENODE_ETCD=http://"+s.etcd, "CACHENODE_SHARDS=4", "CACHENODE_INSECURE=all",
	)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := cmd.Start()
		p.proc = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // its log has the reason
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		h.remove()
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	s.mu.Lock()
	s.pods[ordinal] = p
	s.mu.Unlock()
	s.publish()
	return nil
}

// publish updates the two Services: the headless one has all pods, the clients' one the ready pods.
func (s *statefulSet) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all, ready []string
	for _, p := range s.pods {
		all = append(all, p.host.ip)
		if p.ready && !p.terminating {
			ready = append(ready, p.host.ip+":7400")
		}
	}
	s.network.name(headless, all)
	s.service.set(ready)
}

// available waits until a pod has been ready for minReadySeconds.
func (s *statefulSet) available(ctx context.Context, ordinal int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p := s.pod(ordinal)
	probe := time.NewTicker(200 * time.Millisecond)
	defer probe.Stop()
	var since time.Time
	for {
		why := readyz(ctx, p)
		if why != nil {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		s.mu.Lock()
		p.ready = why == nil
		s.mu.Unlock()
		s.publish()
		if why == nil && time.Since(since) >= s.pace.minReady {
			return nil
		}
		select {
		case <-probe.C:
		case <-p.ended:
			return fmt.Errorf("%s has ended before it was ready", p.name)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", p.name, errors.Join(ctx.Err(), why))
		}
	}
}

func (s *statefulSet) pod(ordinal int) *pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[ordinal]
}

// readyz is the readiness probe.
func readyz(ctx context.Context, p *pod) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.host.ip+":7480/readyz", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", answer.Status)
	}
	return nil
}

// terminate ends a pod as the kubelet does: it removes the endpoint, runs preStop's sleep, sends
// SIGTERM, and SIGKILL after the grace period. The address is released, the volume stays. It fails
// if the pod had to be killed.
func (s *statefulSet) terminate(ordinal int) error {
	p := s.pod(ordinal)
	s.mu.Lock()
	p.terminating = true
	s.mu.Unlock()
	s.publish()
	grace := time.NewTimer(gracePeriod)
	defer grace.Stop()
	preStop := time.NewTimer(s.pace.preStop)
	defer preStop.Stop()
	select {
	case <-preStop.C:
	case <-p.ended:
	}
	began := time.Now()
	_ = p.proc.Signal(syscall.SIGTERM) // it may have ended
	var err error
	select {
	case <-p.ended:
	case <-grace.C:
		err = fmt.Errorf("%s was killed: it did not drain within its grace period", p.name)
		_ = p.proc.Kill()
		<-p.ended
	}
	s.t.Logf("%s at %s has drained and ended after %v", p.name, p.host.ip, time.Since(began).Round(10*time.Millisecond))
	s.gone(ordinal, p)
	return err
}

func (s *statefulSet) gone(ordinal int, p *pod) {
	p.host.remove()
	s.mu.Lock()
	if s.pods[ordinal] == p {
		delete(s.pods, ordinal)
	}
	s.mu.Unlock()
	s.publish()
}

// scale creates or ends pods until there are n: all at once, as podManagementPolicy: Parallel
// requires.
func (s *statefulSet) scale(ctx context.Context, n int) error {
	have := len(s.pods)
	var g errgroup.Group
	for i := have; i < n; i++ {
		if err := s.create(ctx, i); err != nil {
			return err
		}
	}
	for i := have; i < n; i++ {
		g.Go(func() error { return s.available(ctx, i) })
	}
	for i := have - 1; i >= n; i-- {
		g.Go(func() error { return s.terminate(i) })
	}
	return g.Wait()
}

// roll replaces the pods from the highest ordinal down to last, which is updateStrategy's
// partition, with another image or the same: each when the previous one is available.
func (s *statefulSet) roll(ctx context.Context, image string, last int) error {
	s.image = image
	for i := len(s.pods) - 1; i >= last; i-- {
		if err := s.replace(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// replace ends a pod and starts the next one with its name on another host.
func (s *statefulSet) replace(ctx context.Context, ordinal int) error {
	if err := s.terminate(ordinal); err != nil {
		return err
	}
	if err := s.create(ctx, ordinal); err != nil {
		return err
	}
	return s.available(ctx, ordinal)
}

// evict acts like `kubectl drain` of a pod's machine: it checks the PodDisruptionBudget, and
// replaces the pod.
func (s *statefulSet) evict(ctx context.Context, ordinal int) error {
	s.mu.Lock()
	for i, p := range s.pods {
		if i != ordinal && (!p.ready || p.terminating) {
			s.mu.Unlock()
			return fmt.Errorf("the budget of one is used up by %s", p.name)
		}
	}
	s.mu.Unlock()
	return s.replace(ctx, ordinal)
}

// lose ends a pod without notice, with its machine; its volume is available elsewhere.
func (s *statefulSet) lose(ctx context.Context, ordinal int) error {
	p := s.pod(ordinal)
	_ = p.proc.Kill() // it may have ended
	<-p.ended
	s.gone(ordinal, p)
	if err := s.create(ctx, ordinal); err != nil {
		return err
	}
	return s.available(ctx, ordinal)
}

// identities returns the node identities in the volumes.
func (s *statefulSet) identities() map[string]string {
	s.t.Helper()
	out := map[string]string{}
	for i := range s.pods {
		b, err := os.ReadFile(filepath.Join(s.volume(i), "raft", "identity"))
		if err != nil {
			s.t.Error(err)
		}
		out[podName(i)] = strings.TrimSpace(string(b))
	}
	return out
}

// stop kills all remaining pods.
func (s *statefulSet) stop() {
	for i, p := range s.pods {
		_ = p.proc.Kill()
		<-p.ended
		s.gone(i, p)
	}
}

// logs returns the end of every pod's log.
func (s *statefulSet) logs() string {
	files, _ := filepath.Glob(s.dir + "/*.log")
	slices.Sort(files)
	var b strings.Builder
	for _, f := range files {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(&b, "--- %s\n%s\n", filepath.Base(f), text[max(0, len(text)-4000):])
	}
	return b.String()
}
