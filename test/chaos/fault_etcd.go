package chaos

import (
	"context"
	"slices"
	"syscall"
	"time"
)

// etcdFaults are faults of etcd itself.
func etcdFaults() []Fault {
	leader := func(name, about string, inject func(context.Context, *Scene, *member) (heal, error)) Fault {
		return Fault{
			Name: name, About: about, Needs: Needs{Members: 3}, For: 6 * time.Second, Stall: 2500 * time.Millisecond,
			Inject: func(ctx context.Context, s *Scene) (heal, error) {
				s.last = nil
				m, err := s.etcd.leader(ctx)
				if err != nil {
					return nil, err
				}
				s.Say("%s: %s", name, m.name)
				return inject(ctx, s, m)
			},
		}
	}
	cut := leader("etcd-leader-cut", "etcd's leader is cut off from all others for 6 s", cutMember)
	cut.Needs.Network = true
	away := func(name string, d time.Duration) Fault {
		return Fault{
			Name: name, About: "all of etcd is away for " + d.String() + " (SIGKILL)", For: d, NoWrites: true,
			Inject: func(_ context.Context, s *Scene) (heal, error) { return s.killEtcd() },
		}
	}
	return []Fault{
		leader("etcd-leader-kill", "SIGKILL to etcd's leader, which starts again 6 s later", killMember),
		leader("etcd-leader-pause", "SIGSTOP to etcd's leader for 6 s", pauseMember),
		cut, away("etcd-away-10s", 10*time.Second), away("etcd-away-5m", 5*time.Minute),
	}
}

func killMember(_ context.Context, _ *Scene, m *member) (heal, error) {
	return func(ctx context.Context) error {
		if err := m.proc.start(); err != nil {
			return err
		}
		return m.wait(ctx)
	}, m.proc.kill()
}

func pauseMember(_ context.Context, _ *Scene, m *member) (heal, error) {
	return func(ctx context.Context) error {
		if err := m.proc.signal(syscall.SIGCONT); err != nil {
			return err
		}
		return m.wait(ctx)
	}, m.proc.signal(syscall.SIGSTOP)
}

func cutMember(ctx context.Context, s *Scene, m *member) (heal, error) {
	others := slices.DeleteFunc(s.etcdIPs(), func(ip string) bool { return ip == m.host.ip })
	mend, err := m.host.apply(ctx, both(dropped, slices.Concat(others, ips(s.Cluster.Nodes), []string{s.network.self})...)...)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := mend(ctx); err != nil {
			return err
		}
		return m.wait(ctx)
	}, nil
}

// killEtcd kills all members, and starts them again.
func (s *Scene) killEtcd() (heal, error) {
	s.last = nil
	s.Say("kill etcd")
	for _, m := range s.etcd.members {
		if err := m.proc.kill(); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		for _, m := range s.etcd.members {
			if err := m.proc.start(); err != nil {
				return err
			}
		}
		return s.etcd.wait(ctx)
	}, nil
}
