package hostile

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
)

// probes check that a node is alive and ready like a kubelet: each on a separate connection, with
// the timeouts of deploy/k8s/base. They are more frequent than a kubelet's, since attacks are
// short. Another probe checks that new watches start.
type probes struct {
	mu     sync.Mutex
	made   int    // guarded by mu
	failed int    // guarded by mu
	first  string // the first failure; guarded by mu
}

const probePace = 500 * time.Millisecond

// run probes until ctx ends. watches is a client of the crowd; atLeast is the minimum timeout of
// each.
func (p *probes) run(ctx context.Context, t *site, cfg *tls.Config, watches *clientv3.Client, atLeast time.Duration) {
	scheme := "http"
	if cfg != nil {
		scheme = "https"
	}
	web := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	get := func(path string) func(context.Context) error {
		return func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+t.node.HTTP+path, http.NoBody)
			if err != nil {
				return err
			}
			resp, err := web.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", path, resp.Status)
			}
			return nil
		}
	}
	health := func(ctx context.Context) error {
		conn, err := grpc.NewClient(t.node.Client, grpc.WithTransportCredentials(creds(cfg)))
		if err != nil {
			return err
		}
		defer conn.Close()
		r, err := healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
		if err == nil && r.GetStatus() != healthgrpc.HealthCheckResponse_SERVING {
			err = fmt.Errorf("gRPC health: %v", r.GetStatus())
		}
		return err
	}
	var g sync.WaitGroup
	defer g.Wait()
	g.Go(func() { p.repeat(ctx, max(2*time.Second, atLeast), get("/readyz")) })
	g.Go(func() { p.repeat(ctx, max(5*time.Second, atLeast), get("/healthz")) })
	g.Go(func() { p.repeat(ctx, max(2*time.Second, atLeast), health) })
	g.Go(func() {
		p.repeat(ctx, max(2*time.Second, atLeast), func(ctx context.Context) error { return begins(ctx, watches) })
	})
}

// begins reports whether a new watch starts.
func begins(ctx context.Context, c *clientv3.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case r := <-c.Watch(ctx, "/crowd/none", clientv3.WithCreatedNotify()):
		if err := r.Err(); err != nil || !r.Created {
			return fmt.Errorf("a new watch ended: %w", errors.Join(err, ctx.Err()))
		}
		return nil
	case <-ctx.Done():
		return errors.New("a new watch does not start")
	}
}

func (p *probes) repeat(ctx context.Context, timeout time.Duration, probe func(context.Context) error) {
	for pause(ctx, probePace) == nil {
		timed, cancel := context.WithTimeout(ctx, timeout)
		err := probe(timed)
		cancel()
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.made++
		if err != nil {
			if p.failed++; p.first == "" {
				p.first = err.Error()
			}
		}
		p.mu.Unlock()
	}
}

// count returns the number of probes and of failures, and the first failure.
func (p *probes) count() (made, failed int, first string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made, p.failed, p.first
}
