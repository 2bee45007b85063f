package hostile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

// Run runs the attacks and returns the cost of each. The error is the reason why it could not
// continue; the report then has the measurements so far.
func Run(ctx context.Context, cfg Config) (Report, error) {
	var out Report
	if cfg.Say == nil {
		cfg.Say = func(string, ...any) {}
	}
	if err := cfg.Validate(); err != nil {
		return out, err
	}
	if cfg.Cachenode == "" {
		var err error
		if cfg.Cachenode, err = nodetest.Build(ctx, cfg.Dir); err != nil {
			return out, err
		}
	}
	if cfg.Apart {
		if err := cfg.moveApart(ctx); err != nil {
			return out, err
		}
	}
	cfg.Say("etcd with %d keys", cfg.Keys)
	var err error
	if cfg.shipped, err = nodetest.ReadShipped(ctx); err != nil {
		return out, err
	}
	s, err := newStore(ctx, filepath.Join(cfg.Dir, "etcd"), cfg.Keys, "")
	if err != nil {
		return out, err
	}
	defer s.stop()
	for _, a := range Attacks() {
		if len(cfg.Attacks) > 0 && !slices.Contains(cfg.Attacks, a.Name) {
			continue
		}
		for _, mode := range cfg.Modes {
			if !a.in(mode) {
				continue
			}
			row, err := cfg.try(ctx, s, a, mode)
			if err != nil {
				return out, fmt.Errorf("%s, %s: %w", a.Name, mode, err)
			}
			out.Rows = append(out.Rows, row)
			cfg.Say("%s", row.line())
		}
	}
	return out, nil
}

// try runs the rounds of one attack against a new node.
func (c *Config) try(ctx context.Context, s *store, a Attack, mode string) (row Row, err error) {
	row = Row{Attack: a.Name, API: a.API, Mode: mode, Right: "everyone", MaxMemory: c.MaxMemory, MaxRatio: c.MaxRatio}
	if mode == secure {
		row.Right = string(a.right)
	}
	dir := filepath.Join(c.Dir, a.Name+"-"+mode)
	s, end, err := c.around(ctx, s, a.scene(), dir)
	if err != nil {
		return row, err
	}
	defer end()
	t, err := newSite(ctx, c, s, a.scene(), mode, dir)
	if err != nil {
		return row, err
	}
	defer t.stop()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, t.node.Log(2000))
		}
	}()
	mine, err := t.tls(measures)
	if err != nil {
		return row, err
	}
	people, err := newCrowd(s, t.node.Client, mine, c.Watches)
	if err != nil {
		return row, err
	}
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	var g sync.WaitGroup
	leave := func() {
		cancel()
		g.Wait()
	}
	defer func() {
		leave()
		err = errors.Join(err, people.close())
	}()
	var kubelet probes
	ready := make(chan struct{})
	g.Go(func() { people.run(ctx, func() { close(ready) }) })
	select {
	case <-ready:
	case <-time.After(3 * time.Minute):
		return row, errors.New("the crowd's watches did not start within three minutes")
	case <-ctx.Done():
		return row, ctx.Err()
	}
	if err := pause(ctx, min(c.Calm/2, warmUp)); err != nil {
		return row, err
	}
	if err := t.resetPeak(); err != nil {
		return row, err
	}
	g.Go(func() { kubelet.run(ctx, t, mine, people.etcds[1], c.Probe) })
	var before, during, control []pain
	for round := range c.Rounds {
		calm, err := people.calm(ctx, c.Calm, t.node.PID(), before)
		if err != nil {
			return row, err
		}
		before = append(before, calm)
		if round == 0 {
			if row.Rest, err = t.peak(); err != nil {
				return row, err
			}
			row.Log = -t.disk()
		}
		pid, end, err := launch(ctx, c, t.order(&a))
		if err != nil {
			return row, err
		}
		node, attacker := used(t.node.PID()), used(pid)
		hot, err := people.measure(ctx, a.round(c.Hot))
		nodeCores, attackerCores := node.cores(), attacker.cores()
		did, broken := end()
		if err = errors.Join(err, broken); err != nil {
			return row, err
		}
		if ctx.Err() != nil {
			return row, ctx.Err()
		}
		row.add(did)
		if t.node.PID() == 0 {
			row.Restarts++
			row.Why = fmt.Sprintf("the node ended: %v", t.node.End())
			row.Peak = t.memory
			break
		}
		p, err := hot(ctx)
		if row.Did.Breach != "" && err != nil { // for example, a new lineage ends the crowd's watches
			row.Why = err.Error()
			break
		}
		if err != nil {
			return row, err
		}
		p.Node, p.Attacker = nodeCores, attackerCores
		during = append(during, p)
		if row.Peak, err = t.peak(); err != nil {
			return row, err
		}
		if c.Control && !a.controls() {
			if p, err = c.control(ctx, people, t.node.PID(), a.round(c.Hot), order{Attack: a.counterpart(), Etcd: t.etcd, Cores: max(p.Attacker, leastCores)}); err != nil {
				return row, err
			}
			control = append(control, p)
		}
	}
	if t.limit.dir == "" && row.Peak > t.memory {
		row.Restarts++
		row.Why = "more memory than its limit"
	}
	row.Log += t.disk()
	row.Before, row.During, row.Control = median(before), median(during), median(control)
	var first string
	row.Probes, row.Failed, first = kubelet.count()
	if first != "" && row.Why == "" {
		row.Why = first
	}
	if a.scene() == joined && row.Restarts == 0 {
		row.Drain, err = c.drain(outer, t, &a, leave)
	}
	return row, err
}

// control measures a round of an attack's counterpart, which does not touch the node: the crowd's
// delays are then the machine's, where a process uses as many cores as the attacker did, or etcd's.
func (c *Config) control(ctx context.Context, people *crowd, node int, long time.Duration, counterpart order) (p pain, err error) {
	if err := pause(ctx, settle); err != nil { // the node ends the leftovers of the attack
		return p, err
	}
	pid, end, err := launch(ctx, c, counterpart)
	if err != nil {
		return p, err
	}
	nodeSince, since := used(node), used(pid)
	get, err := people.measure(ctx, long)
	nodeCores, own := nodeSince.cores(), since.cores()
	_, broken := end()
	if err := errors.Join(err, broken); err != nil {
		return p, err
	}
	p, err = get(ctx)
	p.Node, p.Attacker = nodeCores, own
	return p, err
}

// leastCores is the cores of a control for an attacker that only waits: 0 would mean all cores.
const leastCores = 0.01

// warmUp is the time from the start of the crowd's last watch to the first calm round: a node that has
// just loaded its keys collects their garbage, and connections are new.
const warmUp = 2 * time.Second

// settle is the time in which a node ends the leftovers of an attack.
const settle = 500 * time.Millisecond

// unreadFor is how long the crowd's writer fills the streams of a client that does not read.
const unreadFor = 3 * time.Second

// drain attacks once more, and ends the node under the attack, after the crowd has left.
func (c *Config) drain(ctx context.Context, t *site, a *Attack, leave func()) (took time.Duration, err error) {
	_, end, err := launch(ctx, c, t.order(a))
	if err != nil {
		return 0, err
	}
	defer func() {
		_, broken := end()
		err = errors.Join(err, broken)
	}()
	if err := pause(ctx, unreadFor); err != nil {
		return 0, err
	}
	leave()
	return t.drain(ctx)
}

// calm measures a calm round. After an attack, and on a machine with other work, a round may not be
// calm: it is repeated if it is worse than twice the best earlier round.
func (c *crowd) calm(ctx context.Context, d time.Duration, node int, before []pain) (p pain, err error) {
	const most = 5
	for range most {
		since := used(node)
		get, err := c.measure(ctx, d)
		cores := since.cores()
		if err != nil {
			return p, err
		}
		if p, err = get(ctx); err != nil {
			return p, err
		}
		p.Node = cores
		if !slices.ContainsFunc(before, func(b pain) bool { return p.Watch > 2*b.Watch || p.Read > 2*b.Read }) {
			break
		}
	}
	return p, nil
}

// median returns the medians of rounds; of an even number the greater of the middle two.
func median(rounds []pain) (p pain) {
	if len(rounds) == 0 {
		return p
	}
	return pain{
		Watch:     middle(rounds, func(r pain) time.Duration { return r.Watch }),
		Read:      middle(rounds, func(r pain) time.Duration { return r.Read }),
		EtcdWatch: middle(rounds, func(r pain) time.Duration { return r.EtcdWatch }),
		EtcdRead:  middle(rounds, func(r pain) time.Duration { return r.EtcdRead }),
		Samples:   middle(rounds, func(r pain) int { return r.Samples }),
		Node:      middle(rounds, func(r pain) float64 { return r.Node }),
		Attacker:  middle(rounds, func(r pain) float64 { return r.Attacker }),
	}
}

func middle[T cmp.Ordered](rounds []pain, of func(pain) T) T {
	values := make([]T, len(rounds))
	for i, r := range rounds {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// usage is the CPU time of a process at a time.
type usage struct {
	pid  int
	at   time.Time
	time time.Duration
}

// used returns the CPU time of a process; zero if it has ended.
func used(pid int) usage {
	n, err := proc.CPU([]int{pid})
	if err != nil {
		n = 0
	}
	return usage{pid, time.Now(), n}
}

// cores returns the number of cores that the process has used since u, or 0 if it has ended.
func (u usage) cores() float64 {
	now := used(u.pid)
	return max(0, (now.time-u.time).Seconds()/now.at.Sub(u.at).Seconds())
}
