package chaos

import (
	"context"
	"fmt"
	"time"
)

// twoFaults are two other faults at a time.
func twoFaults() []Fault {
	return []Fault{{
		Name: "two", About: "two of kill, pause-2s, cut-etcd, cut-peer, oneway-peer, cut-client and loss-5, at random, the second while the first lasts",
		Needs: Needs{Network: true}, For: 3 * time.Second, Inject: injectTwo,
	}}
}

func injectTwo(ctx context.Context, s *Scene) (heal, error) {
	var among []Fault
	for _, name := range []string{"kill", "pause-2s", "cut-etcd", "cut-peer", "oneway-peer", "cut-client", "loss-5"} {
		f, ok := faultNamed(name)
		if !ok {
			return nil, fmt.Errorf("there is no fault %q", name)
		}
		among = append(among, f)
	}
	var heals []heal
	for _, i := range s.rng().Perm(len(among))[:2] {
		s.Say("one of two: %s", among[i].Name)
		h, err := among[i].Inject(ctx, s)
		if err != nil {
			return together(heals...), err
		}
		heals = append(heals, h)
		if err := pause(ctx, time.Second); err != nil {
			return together(heals...), err
		}
	}
	return together(heals...), nil
}
