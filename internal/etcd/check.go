package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// ClusterError says that two endpoints belong to different clusters.
type ClusterError struct {
	Endpoints [2]string
	IDs       [2]uint64
}

func (e *ClusterError) Error() string {
	return fmt.Sprintf("--etcd: %s is of cluster %x and %s of cluster %x: name the members of one cluster",
		e.Endpoints[0], e.IDs[0], e.Endpoints[1], e.IDs[1])
}

// Check asks every endpoint for its version and cluster. It fails with a
// *VersionError for each that is too old and a *ClusterError when they are not
// of one cluster, and with ErrUnavailable when none answers. Endpoints that do not answer beside others
// that do are only logged, once.
func (c *Client) Check(ctx context.Context) error {
	token, err := c.login.token(ctx)
	if err != nil && !isUnavailable(err) && !errors.Is(err, errAttempt) {
		return fmt.Errorf("check etcd: %w", err)
	}
	answers := make([]answer, len(c.endpoints))
	var all sync.WaitGroup
	for i, e := range c.endpoints {
		all.Go(func() { answers[i] = c.ask(withToken(ctx, token), e) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("check etcd: %w", ctx.Err())
	}
	away := make(map[string]error)
	for _, a := range answers {
		switch {
		case a.err == nil:
		case isToken(a.err):
			c.login.forget(token)
			return fmt.Errorf("check etcd at %s: %w", a.endpoint, a.err)
		default:
			away[a.endpoint] = a.err
		}
	}
	if len(away) == len(answers) {
		err := errors.Join(slices.Collect(maps.Values(away))...)
		c.situation.lost(err)
		return unavailable("check etcd: no endpoint answers", err)
	}
	for name, err := range c.away.news(away) {
		c.cfg.Logger.Warn("one endpoint of etcd does not answer, the others do", "endpoint", name, "error", err)
	}
	id, err := judge(answers)
	if err != nil {
		return err
	}
	c.cluster.CompareAndSwap(0, id)
	c.situation.back()
	return nil
}

// answer is what one endpoint says of itself.
type answer struct {
	endpoint string
	version  string
	cluster  uint64
	err      error
}

// ask dials e alone and asks for its status.
func (c *Client) ask(ctx context.Context, e endpoint) answer {
	a := answer{endpoint: e.name}
	conn, err := dialOne(&c.cfg, e)
	if err != nil {
		a.err = err
		return a
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	s, err := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
	if err != nil {
		a.err = fmt.Errorf("%s: %w", e.name, err)
		return a
	}
	a.version, a.cluster = s.GetVersion(), s.GetHeader().GetClusterId()
	return a
}

// judge returns the cluster of all members that answered, or every reason
// to refuse them.
func judge(answers []answer) (cluster uint64, err error) {
	var errs []error
	var first answer
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		if !supported(a.version) {
			errs = append(errs, &VersionError{Endpoint: a.endpoint, Version: a.version})
		}
		if first.cluster == 0 {
			first = a
		}
		if a.cluster != first.cluster {
			errs = append(errs, &ClusterError{
				Endpoints: [2]string{first.endpoint, a.endpoint}, IDs: [2]uint64{first.cluster, a.cluster},
			})
		}
	}
	return first.cluster, errors.Join(errs...)
}

// away remembers which endpoints did not answer last time.
type away struct {
	mu   sync.Mutex
	last map[string]error // guarded by mu
}

// news returns those of now that are not known yet, and remembers now.
func (a *away) news(now map[string]error) map[string]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	fresh := maps.Clone(now)
	maps.DeleteFunc(fresh, func(name string, _ error) bool { return a.last[name] != nil })
	a.last = now
	return fresh
}

// Endpoints returns the endpoints as they were configured, for people.
func (c *Client) Endpoints() string { return strings.Join(c.cfg.Endpoints, ", ") }
