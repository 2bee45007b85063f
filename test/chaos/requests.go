package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// requestLog counts the requests at a member of etcd from etcd's own log of requests. No other
// source at etcd distinguishes a list from a read of the revision. The log is only a sample: etcd
// logs the first hundred requests of a second, and then every hundredth. Streamed lists are not in
// the log; etcd's metrics count them. Nodes send none of their own, they forward them.
type requestLog struct {
	member  *member
	at      int64   // offset of the next entry
	streams float64 // counter at the last call
}

// requestLogs are the logs of all members.
type requestLogs []*requestLog

func newRequestLogs(e *etcd) (all requestLogs) {
	for _, m := range e.members {
		all = append(all, &requestLog{member: m})
	}
	return all
}

// next counts the requests since the last call.
func (all requestLogs) next(ctx context.Context) (sum rangeCounts, err error) {
	for _, l := range all {
		c, err := l.next(ctx)
		if err != nil {
			return sum, err
		}
		sum.Lists += c.Lists
		sum.Passed += c.Passed
		sum.Others += c.Others
		if c.Sample != "" {
			sum.Sample = c.Sample
		}
	}
	return sum, nil
}

// rangeCounts counts Range requests by purpose.
type rangeCounts struct {
	// Lists counts requests for the keys of a range, with or without values.
	Lists int
	// Passed counts the clients' own lists that a node forwarded, because it did not have the
	// revision, or not in time.
	Passed int
	// Others counts reads of one key, of a count, or only of the revision.
	Others int
	// Sample is one of the lists.
	Sample string
}

// next counts the requests since the last call.
func (l *requestLog) next(ctx context.Context) (rangeCounts, error) {
	c, err := l.logged()
	if err != nil {
		return c, fmt.Errorf("read etcd's log: %w", err)
	}
	m, err := l.member.metrics(ctx)
	if err != nil {
		return c, err
	}
	streams := m.sum("grpc_server_started_total", `grpc_method="RangeStream"`)
	c.Passed += int(max(streams-l.streams, 0)) // the counter of a restarted member starts at 0
	l.streams = streams
	return c, nil
}

// logged counts the entries of the log since the last call.
func (l *requestLog) logged() (c rangeCounts, err error) {
	f, err := os.Open(l.member.proc.log)
	if err != nil {
		return c, err
	}
	defer f.Close()
	if _, err := f.Seek(l.at, io.SeekStart); err != nil {
		return c, err
	}
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return c, nil // the next call reads the incomplete line
		}
		if err != nil {
			return c, err
		}
		l.at += int64(len(line))
		c.count(line)
	}
}

// nodeLists counts the lists by nodes at etcd, from the nodes' own metrics. It lacks the last lists
// of a node before a kill. The zero nodeLists is ready.
type nodeLists struct {
	mu   sync.Mutex
	told map[*Node]float64 // guarded by mu; counter at the last look
	sum  float64           // guarded by mu; since the last take
}

// run polls all nodes until ctx ends: the counter of a restarted node begins at 0.
func (l *nodeLists) run(ctx context.Context, c *Cluster) error {
	for {
		l.look(ctx, c)
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (l *nodeLists) look(ctx context.Context, c *Cluster) {
	for _, n := range slices.Concat(c.Nodes, c.Spares) {
		m, err := scrape(ctx, "http://"+n.HTTP+"/metrics")
		if err != nil {
			continue // it is not running or unhealthy
		}
		l.add(n, m.sum("shardwatch_etcd_lists_total"))
	}
}

func (l *nodeLists) add(n *Node, lists float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told = map[*Node]float64{}
	}
	if lists >= l.told[n] {
		l.sum += lists - l.told[n]
	} else {
		l.sum += lists
	}
	l.told[n] = lists
}

// take returns the number of lists since the last call.
func (l *nodeLists) take(ctx context.Context, c *Cluster) int {
	l.look(ctx, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int(l.sum)
	l.sum = 0
	return n
}

// laterPage reports whether the request continues a list: at the revision of its first page, from
// its last key plus a zero byte.
func laterPage(line string) bool {
	const after = `\\x00\" range_end:` // quoted twice
	return strings.Contains(line, after) && strings.Contains(line, " revision:")
}

func (c *rangeCounts) count(line string) {
	const method = `"/etcdserverpb.KV/Range"`
	if !strings.Contains(line, method) {
		return
	}
	if strings.Contains(line, "range_end:") && !strings.Contains(line, "count_only:true") && !strings.Contains(line, "limit:1 ") && !strings.Contains(line, `limit:1"`) {
		if strings.Contains(line, "sort_order:") {
			c.Passed++
			return
		}
		if !laterPage(line) {
			c.Lists++
			c.Sample = strings.TrimSpace(line)
		}
		return
	}
	c.Others++
}
