package chaos

import "maps"

// Part is the result of one kind of client in a cycle. Reads and writes by etcd's API have separate
// parts.
type Part struct {
	Client string `json:"client"`
	// Watches counts the permanent watches, Joins the ones that started late and ended.
	Watches int `json:"watches"`
	Joins   int `json:"joins"`
	// Events is the number of events delivered and judged since the fault.
	Events int `json:"events"`
	// CatchUps counts the deltas, resyncs and relists of watches that the window could not serve.
	// JoinCatchUps counts those of joins, which start at old revisions.
	CatchUps     catchUps `json:"catch_ups"`
	JoinCatchUps catchUps `json:"join_catch_ups"`
	// Reads is the number of answers, all judged; Refused counts the errors, Refusals by their
	// text.
	Reads      int            `json:"reads"`
	Refused    int            `json:"refused"`
	Refusals   map[string]int `json:"refusals,omitempty"`
	Violations int            `json:"violations"`
	Late       delays         `json:"late_ms"`
	// Worst is the longest delay and its watcher.
	Worst string `json:"worst,omitempty"`
	// Moves counts the moves of watchers by nodes and reason.
	Moves map[string]int `json:"moves,omitempty"`
}

// partOf returns the part of a kind of client, which it creates if necessary.
func (c *Cycle) partOf(client string) *Part {
	for i := range c.Clients {
		if c.Clients[i].Client == client {
			return &c.Clients[i]
		}
	}
	c.Clients = append(c.Clients, Part{Client: client})
	return &c.Clients[len(c.Clients)-1]
}

// part adds the measurements of watchers.
func (c *Cycle) part(all map[kind]*measured) {
	for _, k := range []kind{nativeClient, etcdClient, etcdStream} {
		m := all[k]
		if m == nil {
			continue
		}
		p := c.partOf(string(k))
		p.Watches, p.Moves, p.Worst, p.Late = m.watches, m.moves, m.worst, m.late
		p.Events += m.events
		p.CatchUps.add(m.catchUps)
		c.Events += m.events
	}
}

// read adds the results of reads by an API.
func (c *Cycle) read(api string, j *judged) {
	p := c.partOf(api)
	p.Reads += j.reads
	p.Refusals = addUp(p.Refusals, j.refused)
	for _, n := range j.refused {
		p.Refused += n
		c.Refused += n
	}
	c.Reads += j.reads
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

// broken adds violations.
func (c *Cycle) broken(client string, n int) {
	if n > 0 {
		c.partOf(client).Violations += n
		c.Violations += n
	}
}
