package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// rebuilds are faults that create another cluster at the addresses of the clients' cluster.
func rebuilds() []Fault {
	return []Fault{{
		Name: "rebuilt", About: "the nodes and etcd are recreated with fresh data behind running clients, with the same lineage number and by turns the same etcd cluster ID; then writes bring etcd past its old revision",
		Needs: Needs{Members: 1}, Overtakes: true, NoWrites: true, Lists: true, Relists: true, Inject: rebuild,
	}}
}

// rebuild ends all processes but the clients, and starts them again without data.
func rebuild(ctx context.Context, s *Scene) (heal, error) {
	s.last = nil
	m := s.etcd.members[0]
	if err := s.stop(ctx); err != nil {
		return s.goOn, err
	}
	head := s.truth.history().Head()
	s.Say("remove all nodes and etcd, which is at revision %d", head)
	for _, n := range s.Cluster.Nodes {
		if err := errors.Join(n.Kill(), n.Wipe()); err != nil {
			return s.goOn, err
		}
	}
	if err := errors.Join(m.proc.kill(), os.RemoveAll(m.data)); err != nil {
		return s.goOn, err
	}
	if s.Turn%2 == 1 { // etcd derives its cluster ID from the token and the members' addresses
		m.proc.args = slices.DeleteFunc(m.proc.args, func(a string) bool { return strings.HasPrefix(a, clusterToken) })
		m.proc.args = append(m.proc.args, clusterToken+fmt.Sprint("rebuilt-", s.Turn))
	}
	s.truth.beginAnew()
	s.load.acked.reset()
	if err := m.proc.start(); err != nil {
		return s.goOn, err
	}
	if err := m.wait(ctx); err != nil {
		return s.goOn, err
	}
	if err := s.load.load(ctx); err != nil {
		return s.goOn, err
	}
	if err := s.Cluster.Start(); err != nil {
		return s.goOn, err
	}
	if err := s.Cluster.WaitReady(ctx, patience); err != nil {
		return s.goOn, err
	}
	began := time.Now()
	// A position of the old cluster must not become valid in the new cluster when its revisions
	// pass it.
	if err := s.overtake(ctx, m, head); err != nil {
		return s.goOn, err
	}
	if err := s.crowd.reach(ctx, int64(s.truth.history().Head()), patience); err != nil {
		return s.goOn, fmt.Errorf("after a rebuild: %w", err)
	}
	s.Say("all watches have the new cluster's data %v after it was ready, at revision %d", time.Since(began).Round(10*time.Millisecond), s.truth.history().Head())
	return s.goOn, nil
}

// clusterToken is the flag from which etcd derives its cluster ID.
const clusterToken = "--initial-cluster-token="
