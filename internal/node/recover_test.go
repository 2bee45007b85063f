package node_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// lostQuorum is five processes with default settings, whose voters are lost, and
// watches that must continue.
type lostQuorum struct {
	t       *testing.T
	etcd    *etcdtest.Server
	tier    *nodetest.Cluster
	c       *client.Client
	voters  []*nodetest.Node // the killed voters
	rest    []*nodetest.Node // the running nodes
	native  *client.Watcher
	through clientv3.WatchChan // etcd's API, at a node that runs
}

// loseQuorum kills all but one of the voters.
func loseQuorum(t *testing.T) *lostQuorum {
	if testing.Short() {
		t.Skip("runs processes")
	}
	bin, err := nodetest.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &lostQuorum{t: t, etcd: etcdtest.Start(t)}
	l.tier, err = nodetest.Start(within(t), nodetest.Config{
		Binary: bin, Dir: t.TempDir(), Etcd: "http://" + l.etcd.Endpoint(), Nodes: 5, Args: []string{"--shards", "4"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.tier.Stop()
		if t.Failed() {
			t.Log(l.tier.Logs(10_000))
		}
	})
	if l.c, err = client.New(client.Config{Endpoints: l.tier.Endpoints(), RetryFor: patience}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.c.Close() })
	var q admin.Quorum
	testkit.Succeeds(t, "three voters", func() error {
		status, err := admin.New(l.c).ClusterStatus(within(t), 0)
		if q = status.Quorum(); err != nil || len(q.Voters) != 3 || q.Leader == "" {
			return fmt.Errorf("%+v, %w", q, err)
		}
		return nil
	})
	for _, n := range l.tier.Nodes {
		if slices.Contains(q.Voters, n.Name) && len(l.voters) < 2 {
			l.voters = append(l.voters, n)
		} else {
			l.rest = append(l.rest, n)
		}
	}
	l.native = l.c.Watch(within(t), client.Prefix("/k/"), client.FromRevision(2), client.WithoutResync())
	t.Cleanup(l.native.Close)
	l.through = etcdClient(t, l.rest[0].Client).Watch(within(t), "/k/", clientv3.WithPrefix(), clientv3.WithRev(2))
	l.sees()
	for _, n := range l.voters {
		n.Kill()
	}
	l.sees()
	return l
}

// sees writes to etcd, and waits until the watches have received the events.
func (l *lostQuorum) sees() {
	l.t.Helper()
	var want []string
	for i := range 20 {
		key := fmt.Sprintf("/k/%02d", i)
		r, err := l.etcd.Client().Put(within(l.t), key, fmt.Sprint(i))
		if err != nil {
			l.t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%d PUT %s=%d", r.Header.Revision, key, i))
	}
	events(l.t, l.native, want)
	mustSee(l.t, l.through, want)
	if n := l.c.Stats(); n.Lists+n.Resyncs+n.Deltas != 0 {
		l.t.Errorf("%d lists, %d resyncs, %d deltas", n.Lists, n.Resyncs, n.Deltas)
	}
}

// plan waits until gossip has noticed the loss, and returns the planned recovery.
func (l *lostQuorum) plan() (plan admin.VoterRecovery) {
	l.t.Helper()
	testkit.Succeeds(l.t, "a plan", func() (err error) {
		plan, err = admin.New(l.c).PlanVoterRecovery(within(l.t))
		if refused := new(admin.RefusedError); err != nil && !errors.As(err, &refused) {
			l.t.Fatal(err)
		}
		return err
	})
	return plan
}

// recovered waits until three nodes vote, all running nodes have one map, and the
// map can be changed.
func (l *lostQuorum) recovered(from admin.VoterRecovery) {
	l.t.Helper()
	testkit.Succeeds(l.t, "three voters and one map", func() error {
		status, err := admin.New(l.c).ClusterStatus(within(l.t), 0)
		if err != nil {
			return err
		}
		if q := status.Quorum(); len(q.Voters) != 3 || len(q.Alive) != 3 || q.Leader == "" {
			return fmt.Errorf("%+v", q)
		}
		for _, m := range status.Members {
			if m.Status != nil && (m.Status.MapVersion < from.NewVersion || m.Status.Lineage != 1) {
				return fmt.Errorf("%s has map %d of lineage %d", m.Member.Name, m.Status.MapVersion, m.Status.Lineage)
			}
		}
		return nil
	})
	m, err := admin.New(l.c).ShardMap(within(l.t))
	if err != nil {
		l.t.Fatal(err)
	}
	o := operator{l.t, l.c}
	o.does(admin.MoveShard{Shard: m.Shards[0].ID, Owner: l.rest[len(l.rest)-1].Name})
}

// Two of three voters are lost with their disks. After a recovery the other nodes elect
// a leader, and replacements of the lost nodes, with empty disks, join them.
func TestVotersAreRecoveredAfterTwoOfThreeAreLost(t *testing.T) {
	l := loseQuorum(t)
	for _, n := range l.voters {
		if err := n.Wipe(); err != nil {
			t.Fatal(err)
		}
	}
	plan := l.plan()
	// Two operators recover at once.
	done := make(chan admin.VoterRecovery, 2)
	for range cap(done) {
		go func() {
			r, err := admin.New(l.c).RecoverVoters(within(t), plan)
			if refused := new(admin.RefusedError); err != nil && !errors.As(err, &refused) {
				t.Error(err)
			}
			done <- r
		}()
	}
	a, b := <-done, <-done
	if (a.NewVersion == 0) == (b.NewVersion == 0) {
		t.Fatalf("recovered to versions %d and %d, want one recovery", a.NewVersion, b.NewVersion)
	}
	if a.NewVersion == 0 {
		a = b
	}
	if a.NewVersion <= plan.AnnouncedVersion {
		t.Errorf("the recovery changed the map version from %d to %d", plan.AnnouncedVersion, a.NewVersion)
	}
	l.recovered(a)
	l.sees()
	for _, n := range l.voters {
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.tier.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	l.recovered(a)
	l.sees()
}

// An operator recovers the voters with cachectl. cachectl voters shows the recovery, and
// that three nodes vote again.
func TestVotersAreRecoveredWithCachectl(t *testing.T) {
	l := loseQuorum(t)
	bin := filepath.Join(t.TempDir(), "cachectl")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/shardwatch/shardwatch/cmd/cachectl").CombinedOutput(); err != nil {
		t.Fatalf("build cachectl: %v\n%s", err, out)
	}
	cachectl := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(within(t), bin, append(args, "--endpoints", l.rest[0].Client)...)
		out, err := cmd.CombinedOutput()
		exit := new(exec.ExitError)
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	testkit.Succeeds(t, "cachectl voters reports the missing majority", func() error {
		if out, code := cachectl("voters"); code != 4 || !strings.Contains(out, "cachectl voters recover --help") {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
	testkit.Succeeds(t, "a plan", func() error {
		out, code := cachectl("voters", "recover", "--dry-run")
		if code != 0 || !strings.HasPrefix(out, "1 of 3 voters are reachable, 2 are needed; lost: "+l.voters[0].Name+", "+l.voters[1].Name+"\n") {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
	// The nodes declare the lost voters dead one by one. A node that has not done so yet refuses.
	testkit.Succeeds(t, "the recovery", func() error {
		out, code := cachectl("voters", "recover", "--yes")
		if code != 0 || !strings.Contains(out, " leads the voters, with map version ") {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
	testkit.Succeeds(t, "three voters", func() error {
		out, code := cachectl("voters")
		if code != 0 || !strings.Contains(out, "3 of 3 voters are alive") || !strings.Contains(out, "the voters were recovered, with map version ") {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
	l.sees()
	if out, code := cachectl("voters", "recover", "--yes"); code != 1 || !strings.Contains(out, "there is nothing to recover") {
		t.Errorf("a second recovery: exit code %d: %s", code, out)
	}
}

// The lost voters return with their disks after the recovery, as a majority of the old
// voters, and follow the new voters.
func TestReturningVotersFollowTheNewVoters(t *testing.T) {
	l := loseQuorum(t)
	done, err := admin.New(l.c).RecoverVoters(within(t), l.plan())
	if err != nil {
		t.Fatal(err)
	}
	first := l.tier.Nodes[slices.IndexFunc(l.tier.Nodes, func(n *nodetest.Node) bool { return n.Name == done.Node })]
	if first != l.rest[0] { // otherwise it has the watch of etcd's API, which would end
		first.Kill()
		if err := first.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range l.voters {
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.tier.WaitReady(within(t)); err != nil {
		t.Fatal(err)
	}
	l.recovered(done)
	l.sees()
}
