package chaos

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/internal/nodetest"
)

// etcd is the store, a process of its own.
type etcd struct {
	proc     *process
	endpoint string // http://host:port
	client   *clientv3.Client
}

// startEtcd runs one member with its data under dir and waits until it
// answers.
func startEtcd(ctx context.Context, bin, dir string) (*etcd, error) {
	addrs, err := nodetest.FreePorts(2)
	if err != nil {
		return nil, err
	}
	client, peer := "http://"+addrs[0], "http://"+addrs[1]
	e := &etcd{endpoint: client, proc: &process{
		name: "etcd", bin: bin, log: filepath.Join(dir, "etcd.log"),
		args: []string{
			"--name=etcd", "--data-dir=" + filepath.Join(dir, "etcd-data"),
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=etcd=" + peer,
			"--quota-backend-bytes=" + strconv.Itoa(4<<30),
			"--log-level=debug", // logs every request: see requestLog
		},
	}}
	if err := e.proc.start(); err != nil {
		return nil, err
	}
	e.client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{client}, DialTimeout: 5 * time.Second, Context: ctx, Logger: zap.NewNop(),
	})
	if err != nil {
		_ = e.proc.kill()
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	if err := poll(ctx, 30*time.Second, "etcd to answer", func() error {
		if on, err := e.proc.running(); !on {
			return fmt.Errorf("%w: it has ended: %v", errHopeless, err) //nolint:errorlint // how it ended, for people
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := e.client.Get(ctx, "/")
		return err
	}); err != nil {
		err = fmt.Errorf("%w\n%s", err, e.proc.tail(2000))
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *etcd) close() {
	_ = e.client.Close()
	_ = e.proc.kill()
}

// revision returns etcd's revision now.
func (e *etcd) revision(ctx context.Context) (int64, error) {
	r, err := e.client.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("read etcd's revision: %w", err)
	}
	return r.Header.Revision, nil
}

// metrics returns the samples that etcd shows now.
func (e *etcd) metrics(ctx context.Context) (samples, error) {
	return scrape(ctx, e.endpoint+"/metrics")
}

// samples are metrics by name with labels, as they stand in the text format.
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
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
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
