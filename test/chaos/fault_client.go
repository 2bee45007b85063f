package chaos

import (
	"context"
	"time"
)

// clientFaults are faults of clients: they cannot reach a node, or do not read.
func clientFaults() []Fault {
	return []Fault{
		{
			Name: "cut-client", About: "all clients and the owner of most shards do not hear each other",
			Needs: Needs{Network: true}, For: 6 * time.Second, Stall: 2500 * time.Millisecond,
			Inject: func(ctx context.Context, s *Scene) (heal, error) {
				return s.cutVictim(ctx, "its clients", func(*Node) []string { return both(dropped, s.network.self) })
			},
		},
		{
			Name: "half-open", About: "clients do not hear the owner of most shards, which hears them, or the other way round, by turns",
			Needs: Needs{Network: true}, For: 6 * time.Second, Stall: 2500 * time.Millisecond,
			Inject: func(ctx context.Context, s *Scene) (heal, error) {
				return s.cutVictim(ctx, "its clients, half", func(*Node) []string { return s.oneway([]string{s.network.self}) })
			},
		},
		{
			Name: "slow-reader", About: "a tenth of the watches of each client stop reading for 15 s; the others must not notice",
			For: 15 * time.Second, Stall: 2500 * time.Millisecond,
			Inject: func(_ context.Context, s *Scene) (heal, error) {
				s.last = nil
				s.Say("some watches stop reading")
				s.crowd.gate.close()
				return func(context.Context) error { s.crowd.gate.open(); return nil }, nil
			},
		},
	}
}
