package node_test

import (
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// Five nodes may vote and three do. Two voters are stopped at the same time, as when a
// StatefulSet is scaled: the remaining nodes have a majority, and change the map.
func TestStoppedVotersLeaveAQuorum(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 5, 3, func(cfg *node.Config) {
		shards(2, 2)(cfg)
		cfg.Self.BootstrapExpect = 3
	})
	c.ready()
	var voters, rest []*machine
	testkit.Succeeds(t, "three vote", func() error {
		voters, rest = nil, nil
		o := operator{t, c.client()}
		for _, m := range o.status().Members {
			if m.Member.Voter {
				voters = append(voters, c.machineOf(shard.NodeID(m.Member.Name)))
			} else {
				rest = append(rest, c.machineOf(shard.NodeID(m.Member.Name)))
			}
		}
		if len(voters) != 3 || len(rest) != 2 {
			return fmt.Errorf("%d vote, %d do not", len(voters), len(rest))
		}
		return nil
	})
	voters[1].stop()
	voters[2].drain()
	if err := voters[1].wait(); err != nil {
		t.Error(err)
	}
	o := operator{t, c.client(voters[0], rest[0], rest[1])}
	testkit.Succeeds(t, "the remaining nodes vote", func() error {
		now, lead := 0, 0
		for _, m := range o.status().Members {
			if m.Member.State != admin.MemberAlive {
				continue
			}
			if m.Member.Voter {
				now++
			}
			if m.Member.Leader {
				lead++
			}
		}
		if now != 3 || lead != 1 {
			return fmt.Errorf("%d vote, %d lead", now, lead)
		}
		return nil
	})
	o.does(admin.DrainNodes{Nodes: []string{rest[0].name}})
}

// Two of three voters die at once: every node's cluster status reports that there
// is no leader and how many voters are missing, and clients are served.
func TestStatusWithoutALeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4, 3, shards(2, 2))
	c.ready()
	o := operator{t, c.client()}
	testkit.Succeeds(t, "a leader", func() error {
		if q := o.status().Quorum(); q.Leader == "" || q.Spare() != 1 || len(q.Voters) != 3 {
			return fmt.Errorf("%+v", q)
		}
		return nil
	})
	last := c.put(keys(4)...)
	c.nodes[0].crash()
	c.nodes[1].crash()
	for _, m := range c.nodes[2:] {
		o := operator{t, c.client(m)}
		testkit.Succeeds(t, "no leader, at "+m.name, func() error {
			if q := o.status().Quorum(); q.Leader != "" || q.Spare() != -1 || len(q.Voters) != 3 {
				return fmt.Errorf("%+v", q)
			}
			return nil
		})
		if why := m.node.NotReady(); len(why) > 0 {
			t.Errorf("%s is not ready for clients: %v", m.name, why)
		}
	}
	w := c.client(c.nodes[3]).Watch(within(t), client.Prefix("/"), client.FromRevision(last))
	defer w.Close()
	if u, err := w.Next(within(t)); err != nil || u.Revision != last {
		t.Errorf("%+v, %v", u, err)
	}
}

// A node that an operator has drained, and that still runs, keeps no clients: by
// either API they resume at other nodes. A client that reaches no other node is
// served, and told to retry. After an undrain, clients use the node as before.
func TestDrainedNodeKeepsNoClients(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 3, shards(2, 2))
	from := c.put(keys(16)...) + 1
	c.ready()
	c.settled(2, 2)
	ctx := within(t)

	var users []*client.Client
	var watches []*client.Watcher
	for range 8 {
		user := c.client()
		w := user.Watch(ctx, client.Prefix("/"), client.FromRevision(from))
		defer w.Close()
		<-w.Started()
		users, watches = append(users, user), append(watches, w)
	}
	drained := c.busiest()
	o := operator{t, c.client(c.other(drained))}
	at := func() int64 {
		for _, m := range o.status().Members {
			if m.Member.Name == drained.name && m.Status != nil {
				return m.Status.Watches
			}
		}
		t.Fatalf("the status does not contain %s", drained.name)
		return 0
	}
	mobile, lonely := etcdClient(t, drained.clients), etcdClient(t, drained.clients)
	etcds := []clientv3.WatchChan{
		mobile.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithCreatedNotify()),
		lonely.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithCreatedNotify()),
	}
	for _, w := range etcds {
		if r := <-w; !r.Created {
			t.Fatalf("%+v", r)
		}
	}
	mobile.SetEndpoints("http://"+c.nodes[0].clients, "http://"+c.nodes[1].clients, "http://"+c.nodes[2].clients)
	members := func(want int) {
		t.Helper()
		testkit.Succeeds(t, fmt.Sprintf("%d members in etcd's API", want), func() error {
			r, err := mobile.MemberList(ctx)
			if err == nil && len(r.Members) != want {
				err = fmt.Errorf("%v", r.Members)
			}
			return err
		})
	}
	lists := c.lists()

	o.does(admin.DrainNodes{Nodes: []string{drained.name}})
	testkit.Succeeds(t, "the drained node's clients are at other nodes", func() error {
		if n := at(); n != 1 { // the client that reaches no other node
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
	members(2)
	last := c.put(keys(16)...)
	for i, w := range watches {
		for want := from; want <= last; want++ {
			if u, err := w.Next(ctx); err != nil || u.Kind != client.KindBatch || u.Revision != want {
				t.Fatalf("revision %d at watch %d: %v, %+v", want, i, err, u)
			}
		}
		if s := users[i].Stats(); s.Lists > 0 || s.Units != (client.Units{}) {
			t.Errorf("a client listed: %+v", s)
		}
	}
	for i, w := range etcds {
		for want := from; want <= last; {
			r := <-w
			if r.Err() != nil {
				t.Fatalf("revision %d at etcd watch %d: %v", want, i, r.Err())
			}
			for _, e := range r.Events {
				if e.Kv.ModRevision != want {
					t.Fatalf("revision %d at etcd watch %d: %v", want, i, e)
				}
				want++
			}
		}
	}
	if n := c.lists() - lists; n > 0 {
		t.Errorf("%d lists at etcd", n)
	}
	stranger, err := native(t, drained).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Send(create(&pb.CreateWatch{})); err != nil {
		t.Fatal(err)
	}
	if r, err := stranger.Recv(); err != nil || r.GetCreated() == nil {
		t.Errorf("a new watch at the drained node: %v, %v", r, err)
	}

	o.does(admin.UndrainNodes{Nodes: []string{drained.name}})
	members(3)
	var back client.Range // a shard that the node has again
	for _, s := range o.status().Map.Shards {
		if slices.Contains(s.Replicas, drained.name) {
			back = s.Range
		}
	}
	before := at()
	testkit.Succeeds(t, "clients use the node again", func() error {
		w := c.client().Watch(ctx, back)
		t.Cleanup(w.Close)
		<-w.Started()
		if n := at(); n <= before {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
}
