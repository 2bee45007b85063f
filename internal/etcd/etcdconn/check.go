package etcdconn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// ClusterError reports that two endpoints belong to different clusters.
type ClusterError struct {
	Endpoints [2]string
	IDs       [2]uint64
}

func (e *ClusterError) Error() string {
	return fmt.Sprintf("--etcd: %s is of cluster %x and %s of cluster %x: name the members of one cluster",
		e.Endpoints[0], e.IDs[0], e.Endpoints[1], e.IDs[1])
}

// Check asks every endpoint for its version and cluster, and returns the cluster. It fails with a
// *VersionError for each endpoint that is too old, with a *ClusterError when they belong to different
// clusters, and with ErrUnavailable when none answers. If only some do not answer, these are logged,
// once.
func (c *Conns) Check(ctx context.Context) (cluster uint64, err error) {
	token, err := c.login.token(ctx)
	if err != nil && !IsUnavailable(err) && !errors.Is(err, errAttempt) {
		return 0, fmt.Errorf("check etcd: %w", err)
	}
	answers, errs := Each(WithToken(ctx, token), c, c.ask)
	for i := range answers {
		answers[i].endpoint, answers[i].err = c.endpoints[i].name, errs[i]
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("check etcd: %w", ctx.Err())
	}
	away := make(map[string]error)
	for _, a := range answers {
		switch {
		case a.err == nil:
		case isToken(a.err):
			c.login.forget(token)
			return 0, fmt.Errorf("check etcd at %s: %w", a.endpoint, a.err)
		default:
			away[a.endpoint] = fmt.Errorf("%s: %w", a.endpoint, a.err)
		}
	}
	if len(away) == len(answers) {
		err := errors.Join(slices.Collect(maps.Values(away))...)
		c.situation.lost(err)
		return 0, Unavailable("check etcd: no endpoint answers", err)
	}
	for name, err := range c.away.news(away) {
		c.cfg.Logger.Warn("one endpoint of etcd does not answer, the others do", "endpoint", name, "error", err)
	}
	if cluster, err = judge(answers); err != nil {
		return 0, err
	}
	c.situation.back()
	return cluster, nil
}

// answer is the version and cluster ID of one endpoint.
type answer struct {
	endpoint string
	version  string
	cluster  uint64
	err      error
}

// ask asks one endpoint for its status.
func (c *Conns) ask(ctx context.Context, conn *grpc.ClientConn) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	s, err := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})
	return answer{version: s.GetVersion(), cluster: s.GetHeader().GetClusterId()}, err
}

// judge returns the common cluster of all members that answered, or every reason to
// reject them.
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

// away stores the endpoints that did not answer last time.
type away struct {
	mu   sync.Mutex
	last map[string]error // guarded by mu
}

// news returns the endpoints of now that are not stored yet, and stores now.
func (a *away) news(now map[string]error) map[string]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	fresh := maps.Clone(now)
	maps.DeleteFunc(fresh, func(name string, _ error) bool { return a.last[name] != nil })
	a.last = now
	return fresh
}
