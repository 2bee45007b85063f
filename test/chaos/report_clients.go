package chaos

import (
	"fmt"
	"maps"
	"slices"
)

// Part is what came of one kind of client in a cycle or a run. Reads and
// writes by etcd's API have a part of their own.
type Part struct {
	Client  string `json:"client"`
	Watches int    `json:"watches"`
	// Events were delivered since the fault, and judged.
	Events int `json:"events"`
	// Reads were answered and judged, Refusals are the errors that came instead
	// and how often each did.
	Reads      int            `json:"reads"`
	Refused    int            `json:"refused"`
	Refusals   map[string]int `json:"refusals,omitempty"`
	Violations int            `json:"violations"`
	// Gap is the longest delay of each watcher; Stayed and Moved are those that
	// kept their node, and those that did not.
	Gap    Quantiles `json:"gap"`
	Stayed Quantiles `json:"gap_stayed"`
	Moved  Quantiles `json:"gap_moved"`
	// Worst is the longest of these delays and whose it was.
	Worst string `json:"worst,omitempty"`
	// Moves says how many watchers went from where to where, and why.
	Moves map[string]int `json:"moves,omitempty"`

	gaps gaps
}

// partOf returns the part of a kind of client, which it adds when need be.
func (c *Cycle) partOf(client string) *Part {
	for i := range c.Clients {
		if c.Clients[i].Client == client {
			return &c.Clients[i]
		}
	}
	c.Clients = append(c.Clients, Part{Client: client})
	return &c.Clients[len(c.Clients)-1]
}

// part takes what the watchers measured.
func (c *Cycle) part(all map[kind]*measured) {
	for _, k := range []kind{nativeClient, etcdClient, etcdStream} {
		m := all[k]
		if m == nil {
			continue
		}
		p := c.partOf(string(k))
		p.Watches, p.Events, p.Moves, p.Worst, p.gaps = m.watches, m.events, m.moves, m.worst, m.gaps
		p.finish()
		c.Events += m.events
		c.gaps.add(m.gaps)
	}
	c.Stayed, c.Moved = quantiles(c.gaps.Stayed), quantiles(c.gaps.Moved)
}

// read takes what came of the reads by an API.
func (c *Cycle) read(api string, j *judged) {
	p := c.partOf(api)
	p.Reads, p.Refusals = j.reads, j.refused
	for _, n := range j.refused {
		p.Refused += n
	}
	c.Reads += p.Reads
	c.Refused += p.Refused
}

// broken adds violations.
func (c *Cycle) broken(client string, n int) {
	if n > 0 {
		c.partOf(client).Violations += n
		c.Violations += n
	}
}

func (p *Part) finish() {
	p.Gap = quantiles(slices.Concat(p.gaps.Stayed, p.gaps.Moved))
	p.Stayed, p.Moved = quantiles(p.gaps.Stayed), quantiles(p.gaps.Moved)
}

// sumParts adds a cycle's parts to those of a run. The gaps of a void cycle
// say nothing.
func sumParts(sum, parts []Part, counts bool) []Part {
	all := Cycle{Clients: sum}
	for i := range parts {
		p, s := &parts[i], all.partOf(parts[i].Client)
		s.Watches = max(s.Watches, p.Watches)
		s.Events += p.Events
		s.Reads += p.Reads
		s.Refused += p.Refused
		s.Violations += p.Violations
		s.Refusals = addUp(s.Refusals, p.Refusals)
		s.Moves = addUp(s.Moves, p.Moves)
		if !counts {
			continue
		}
		s.gaps.add(p.gaps)
		was := s.Gap.Max
		if s.finish(); s.Gap.Max > was {
			s.Worst = p.Worst
		}
	}
	return all.Clients
}

func addUp(sum, more map[string]int) map[string]int {
	if sum == nil {
		return maps.Clone(more)
	}
	for k, n := range more {
		sum[k] += n
	}
	return sum
}

var partColumns = []string{
	"client", "watches", "events judged", "reads judged", "violations",
	"gap p50/p99/max", "of those that stayed", "and that moved",
}

func (p Part) cells() []string {
	return []string{
		p.Client, fmt.Sprint(p.Watches), fmt.Sprint(p.Events), fmt.Sprintf("%d (%d refused)", p.Reads, p.Refused), fmt.Sprint(p.Violations),
		p.Gap.String(), p.Stayed.String(), p.Moved.String(),
	}
}
