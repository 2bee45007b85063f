package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

// Scripts that need a real etcd, for leases, bounds of transactions, and many keys. They
// share three nodes with their etcd, and each has a prefix, $P.
func TestScriptsWithNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("runs etcd and three nodes")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	etcd := etcdtest.StartProcess(t)
	bin, err := nodetest.Build(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := nodetest.Start(ctx, nodetest.Config{Binary: bin, Dir: t.TempDir(), Etcd: etcd.Endpoint(), Args: []string{"--shards", "2"}})
	if err != nil {
		t.Fatal(err)
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the scripts, which run in parallel
		_ = cli.Close()
		if t.Failed() {
			t.Log(nodes.Logs(3000))
		}
		nodes.Stop()
	})
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/nodes",
		UpdateScripts: os.Getenv("UPDATE") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("CACHECTL_ENDPOINTS", strings.Join(nodes.Endpoints(), ","))
			env.Setenv("P", env.WorkDir)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// fill puts keys below a prefix, with values of some bytes.
			"fill": func(ts *testscript.TestScript, _ bool, args []string) {
				keys, err := strconv.Atoi(args[1])
				ts.Check(err)
				size, err := strconv.Atoi(args[2])
				ts.Check(err)
				for i := 0; i < keys; i += 100 {
					var ops []clientv3.Op
					for k := i; k < min(i+100, keys); k++ {
						ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%05d", args[0], k), strings.Repeat(strconv.Itoa(k%10), size)))
					}
					_, err := cli.Txn(context.Background()).Then(ops...).Commit()
					ts.Check(err)
				}
			},
			// await-keys waits until a prefix has so many keys.
			"await-keys": func(ts *testscript.TestScript, _ bool, args []string) {
				want, err := strconv.ParseInt(args[1], 10, 64)
				ts.Check(err)
				await(ts, args[1]+" keys", func() bool {
					r, err := cli.Get(context.Background(), args[0], clientv3.WithPrefix(), clientv3.WithCountOnly())
					return err == nil && r.Count >= want
				})
			},
			// grant makes a lease and sets $LEASE; revoke ends it.
			"grant": func(ts *testscript.TestScript, _ bool, _ []string) {
				lease, err := cli.Grant(context.Background(), 600)
				ts.Check(err)
				ts.Setenv("LEASE", fmt.Sprintf("0x%x", lease.ID))
			},
			"revoke": func(ts *testscript.TestScript, _ bool, _ []string) {
				var id int64
				_, err := fmt.Sscanf(ts.Getenv("LEASE"), "0x%x", &id)
				ts.Check(err)
				_, err = cli.Revoke(context.Background(), clientv3.LeaseID(id))
				ts.Check(err)
			},
		},
	})
}
