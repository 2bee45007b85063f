package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/shardwatch/shardwatch/internal/freeport"
)

// etcd is the store: one or three members, each in a separate process.
type etcd struct {
	members []*member
	client  *clientv3.Client // of all members
	writing atomic.Int64     // index of the member that takes writes
}

// member is one process of etcd.
type member struct {
	name, endpoint string // http://host:port
	addr, peer     string // host:port
	data           string // data directory
	host           *host  // nil: without a network
	proc           *process
	client         *clientv3.Client // for this member only
}

// startEtcd runs members with their data under dir, each on a host if there are any, and waits
// until all answer.
func startEtcd(ctx context.Context, bin, dir string, members int, hosts []*host) (*etcd, error) {
	addrs, err := freeport.Take(2 * members)
	if err != nil {
		return nil, err
	}
	e := &etcd{}
	var cluster []string
	for i := range members {
		m := &member{name: "etcd-" + strconv.Itoa(i+1), addr: addrs[2*i], peer: "http://" + addrs[2*i+1]}
		if hosts != nil {
			m.host = hosts[i]
			m.addr, m.peer = m.host.ip+":2379", "http://"+m.host.ip+":2380"
		}
		m.endpoint = "http://" + m.addr
		e.members = append(e.members, m)
		cluster = append(cluster, m.name+"="+m.peer)
	}
	for _, m := range e.members {
		m.data = filepath.Join(dir, m.name+"-data")
		m.proc = &process{
			name: m.name, bin: bin, log: filepath.Join(dir, m.name+".log"),
			args: []string{
				"--name=" + m.name, "--data-dir=" + m.data,
				"--listen-client-urls=" + m.endpoint, "--advertise-client-urls=" + m.endpoint,
				"--listen-peer-urls=" + m.peer, "--initial-advertise-peer-urls=" + m.peer,
				"--initial-cluster=" + strings.Join(cluster, ","),
				"--quota-backend-bytes=" + strconv.Itoa(8<<30),
				"--unsafe-no-fsync", // processes are killed here, not machines
				"--log-level=debug", // logs every request; see requestLog
			},
		}
		if m.host != nil {
			m.proc.bin, m.proc.args = m.host.run(bin, m.proc.args)
		}
		if err := m.proc.start(); err != nil {
			return nil, errors.Join(err, e.close())
		}
	}
	if err := e.connect(ctx); err != nil {
		return nil, errors.Join(err, e.close())
	}
	for _, m := range e.members {
		if err := m.wait(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("%w\n%s", err, m.proc.tail(2000)), e.close())
		}
	}
	return e, nil
}

// connect makes the clients.
func (e *etcd) connect(ctx context.Context) (err error) {
	dial := func(endpoints ...string) (*clientv3.Client, error) {
		return clientv3.New(clientv3.Config{
			Endpoints: endpoints, DialTimeout: 5 * time.Second, Context: ctx, Logger: zap.NewNop(),
			DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
			// By default, gRPC would retry only every two minutes after a long outage of etcd.
			DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: time.Second,
			})},
		})
	}
	if e.client, err = dial(e.endpoints()...); err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	for _, m := range e.members {
		if m.client, err = dial(m.endpoint); err != nil {
			return fmt.Errorf("connect to %s: %w", m.name, err)
		}
	}
	return nil
}

func (e *etcd) endpoints() []string {
	out := make([]string, len(e.members))
	for i, m := range e.members {
		out[i] = m.endpoint
	}
	return out
}

// wait waits until the member answers.
func (m *member) wait(ctx context.Context) error {
	return poll(ctx, 60*time.Second, m.name+" to answer", func() error {
		if on, err := m.proc.running(); !on {
			return fmt.Errorf("%w: it has ended: %v", errHopeless, err) //nolint:errorlint // how it ended, for people
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := m.client.Get(ctx, "/")
		return err
	})
}

// wait waits until all members answer.
func (e *etcd) wait(ctx context.Context) error {
	for _, m := range e.members {
		if err := m.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// leader returns the member that leads.
func (e *etcd) leader(ctx context.Context) (*member, error) {
	for _, m := range e.members {
		s, err := m.client.Status(ctx, m.endpoint)
		if err != nil {
			return nil, fmt.Errorf("ask %s for its leader: %w", m.name, err)
		}
		if s.Leader == s.Header.GetMemberId() {
			return m, nil
		}
	}
	return nil, errors.New("no member of etcd leads")
}

// kv returns the client of the member that takes writes. A caller calls failed after a failed
// write, and further writes go to another member: a member that hangs must not block all writers.
func (e *etcd) kv() (c *clientv3.Client, failed func()) {
	at := e.writing.Load()
	n := int64(len(e.members))
	return e.members[at%n].client, func() { e.writing.CompareAndSwap(at, at+1) }
}

func (e *etcd) close() error {
	var errs []error
	for _, m := range e.members {
		if m.client != nil {
			errs = append(errs, m.client.Close())
		}
		errs = append(errs, m.proc.kill())
	}
	if e.client != nil {
		errs = append(errs, e.client.Close())
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

// revision returns etcd's current revision.
func (e *etcd) revision(ctx context.Context) (int64, error) {
	var errs []error
	for _, m := range e.members { // all are listed, but one may just have stopped
		timed, cancel := context.WithTimeout(ctx, 5*time.Second)
		r, err := m.client.Get(timed, "/", clientv3.WithCountOnly())
		cancel()
		if err == nil {
			return r.Header.Revision, nil
		}
		errs = append(errs, err)
	}
	return 0, fmt.Errorf("read etcd's revision: %w", errors.Join(errs...))
}

// metrics returns the current samples of a member.
func (m *member) metrics(ctx context.Context) (samples, error) {
	return scrape(ctx, m.endpoint+"/metrics")
}

// samples are metrics by name with labels, as in the text format.
type samples map[string]float64

// sum adds up all samples of a name whose labels contain all the given parts.
func (s samples) sum(name string, labels ...string) float64 {
	total := 0.0
next:
	for k, v := range s {
		if k != name && !strings.HasPrefix(k, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(k, l) {
				continue next
			}
		}
		total += v
	}
	return total
}

// scrape reads metrics in Prometheus' text format.
func scrape(ctx context.Context, url string) (samples, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics of %s: %s", url, resp.Status)
	}
	out := samples{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			out[line[:at]] = v
		}
	}
	return out, lines.Err()
}
