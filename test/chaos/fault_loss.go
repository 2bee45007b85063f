package chaos

import (
	"context"
	"fmt"
	"time"
)

// losses are networks that lose packets of all nodes at random, in both directions.
func losses() []Fault {
	loss := func(percent int) Fault {
		return Fault{
			Name: fmt.Sprintf("loss-%d", percent), About: fmt.Sprintf("%d %% of all packets to every node are lost", percent),
			Needs: Needs{Network: true}, For: 10 * time.Second,
			Inject: func(ctx context.Context, s *Scene) (heal, error) { return s.lose(ctx, percent) },
		}
	}
	return []Fault{loss(5), loss(30)}
}

func (s *Scene) lose(ctx context.Context, percent int) (heal, error) {
	s.last = nil
	s.Say("lose %d %% of all packets to every node", percent)
	var heals []heal
	for _, n := range s.Cluster.Nodes {
		h, err := n.host.apply(ctx, fmt.Sprintf("INPUT ! -i lo -m statistic --mode random --probability %.2f -j DROP", float64(percent)/100))
		if err != nil {
			return nil, err
		}
		heals = append(heals, h)
	}
	return together(heals...), nil
}
