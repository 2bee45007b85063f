package mapchange

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// NewPlan returns the plan of an order. It fails with a *RefusedError when the order
// cannot be carried out, or needs Force and does not have it, and with a
// *kv.InvalidError when it names a shard or node that does not exist.
func NewPlan(c *Cluster, o Order) (*Plan, error) {
	if o.IfVersion != 0 && o.IfVersion != c.Map.Version {
		return nil, refused("if_version", "the shard map has version %d, not %d", c.Map.Version, o.IfVersion)
	}
	change, doubts, err := o.Request.change(c)
	if err != nil {
		return nil, err
	}
	p := &Plan{Version: c.Map.Version, Change: change}
	for _, d := range doubts {
		p.Warnings = append(p.Warnings, d.Reason)
	}
	if r, ok := o.Request.(Undrain); ok && change == nil && !o.Repeated {
		p.Warnings = append(p.Warnings, are(r.Nodes)+" not drained") // moves to these nodes have other reasons
		return p, nil
	}
	if len(doubts) > 0 && !o.Force {
		return nil, doubt(doubts[0].Field, "%s", strings.Join(p.Warnings, "; and "))
	}
	if r, ok := o.Request.(Settings); ok {
		p.Warnings = append(p.Warnings, r.warnings(c)...)
	}
	if err := p.addSteps(c, o.Request); err != nil {
		return nil, err
	}
	return p, nil
}

func (r Split) change(c *Cluster) (shard.Change, []*RefusedError, error) {
	s, err := c.shardNamed("shard", r.Shard)
	if err != nil {
		return nil, nil, err
	}
	at := slices.Sorted(slices.Values(r.At))
	for i, key := range at {
		switch {
		case i > 0 && key == at[i-1]:
			return nil, nil, &kv.InvalidError{Field: "at", Reason: fmt.Sprintf("%q is named twice", key)}
		case key == s.Range.Start:
			return nil, nil, &kv.InvalidError{Field: "at", Reason: fmt.Sprintf("shard %d begins at %q already", s.ID, key)}
		case key == s.Range.End && key != "":
			return nil, nil, &kv.InvalidError{Field: "at", Reason: fmt.Sprintf("shard %d ends at %q already", s.ID, key)}
		case !s.Range.Contains(key):
			return nil, nil, &kv.InvalidError{Field: "at", Reason: fmt.Sprintf("%q is outside shard %d, which covers %v", key, s.ID, s.Range)}
		}
	}
	return shard.Split{Shard: s.ID, At: at, Stay: true}, c.rests("shard", &s, nil), nil
}

func (r Merge) change(c *Cluster) (shard.Change, []*RefusedError, error) {
	a, err := c.shardNamed("shard", r.Shard)
	if err != nil {
		return nil, nil, err
	}
	b, err := c.shardNamed("with", r.With)
	if err != nil {
		return nil, nil, err
	}
	if a.ID == b.ID {
		return nil, nil, &kv.InvalidError{Field: "with", Reason: fmt.Sprintf("shard %d cannot be merged with itself", a.ID)}
	}
	left, right := &a, &b
	if right.Range.Start < left.Range.Start {
		left, right = right, left
	}
	if left.Range.End != right.Range.Start {
		return nil, nil, &kv.InvalidError{Field: "with", Reason: fmt.Sprintf("shards %d and %d are not adjacent: %s", a.ID, b.ID, c.neighbours(&a))}
	}
	for _, served := range c.Map.Spec.Ranges {
		if served.Start == right.Range.Start {
			return nil, nil, &kv.InvalidError{Field: "with", Reason: fmt.Sprintf("shards %d and %d belong to two ranges that are served (--prefix): %q begins the second", left.ID, right.ID, served.Start)}
		}
	}
	if c.joins(left.ID) && c.joins(right.ID) && left.Seat() == right.Seat() {
		return nil, nil, nil
	}
	doubts := c.rests("with", &b, c.rests("shard", &a, nil))
	to, other := left, right
	switch {
	case len(left.Home.Pins) > 0 && len(right.Home.Pins) > 0 && !slices.Equal(left.Home.Pins, right.Home.Pins):
		doubts = append(doubts, doubt("with", "both were moved by hand, to different nodes: the merged shard would stay with %s", names(left.Home.Pins)))
	case len(left.Home.Pins) == 0 && (len(right.Home.Pins) > 0 || c.bytes(right) > c.bytes(left)):
		to, other = right, left // so that fewer bytes are copied
	}
	change, err := planner.Together(c.Map, to.ID, other.ID)
	return change, doubts, err
}

// neighbours describes the shards with which a shard can be merged, for messages.
func (c *Cluster) neighbours(s *shard.Shard) string {
	var next []shard.ID
	for i := range c.Map.Shards {
		o := &c.Map.Shards[i]
		if (o.Range.End != "" && o.Range.End == s.Range.Start) || (s.Range.End != "" && s.Range.End == o.Range.Start) {
			next = append(next, o.ID)
		}
	}
	switch len(next) {
	case 0:
		return fmt.Sprintf("shard %d has no neighbour", s.ID)
	case 1:
		return fmt.Sprintf("the neighbour of %d is %d", s.ID, next[0])
	}
	return fmt.Sprintf("the neighbours of %d are %d and %d", s.ID, next[0], next[1])
}

func (r Move) change(c *Cluster) (shard.Change, []*RefusedError, error) {
	s, err := c.shardNamed("shard", r.Shard)
	if err != nil {
		return nil, nil, err
	}
	home := shard.Home{Seat: s.Home.Seat, Replicas: s.Home.Replicas}
	var doubts []*RefusedError
	switch {
	case len(r.To) > 0 && r.Owner != "":
		return nil, nil, &kv.InvalidError{Field: "owner", Reason: "name the owner as the first of to"}
	case r.Owner != "":
		home.Pins = append([]shard.NodeID{r.Owner}, slices.DeleteFunc(slices.Clone(s.Home.Pins), func(n shard.NodeID) bool { return n == r.Owner })...)
		home.Pins = home.Pins[:min(len(home.Pins), c.wanted(&s))]
		doubts, err = c.destination("owner", r.Owner, doubts)
	case len(r.To) == 0:
		return nil, nil, refused("to", "shard %d would lose its last replica", s.ID)
	default:
		home.Pins = r.To
		if home.Replicas = len(r.To); home.Replicas == c.Map.Spec.Replicas {
			home.Replicas = 0
		}
		if len(r.To) > shard.MaxReplicas {
			return nil, nil, &kv.InvalidError{Field: "to", Reason: fmt.Sprintf("%d nodes: a shard has %d replicas at most", len(r.To), shard.MaxReplicas)}
		}
		for i, n := range r.To {
			if slices.Contains(r.To[:i], n) {
				return nil, nil, &kv.InvalidError{Field: "to", Reason: fmt.Sprintf("%s is named twice", n)}
			}
			if doubts, err = c.destination("to", n, doubts); err != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if len(r.To) > 0 && len(r.To) < c.Map.Spec.Replicas {
		doubts = append(doubts, doubt("to", "shard %d would have %d of the %d replicas that the cluster wants (--replicas)", s.ID, len(r.To), c.Map.Spec.Replicas))
	}
	if zone := c.oneZone(r.To); zone != "" {
		doubts = append(doubts, doubt("to", "all replicas of shard %d would be in zone %q, although other zones have nodes", s.ID, zone))
	}
	if c.joins(s.ID) {
		home.Seat = 0 // otherwise the planner would still merge it
	}
	doubts = c.rests("shard", &s, doubts)
	if slices.Equal(home.Pins, s.Home.Pins) && home.Replicas == s.Home.Replicas && home.Seat == s.Home.Seat {
		return nil, nil, nil
	}
	return shard.Rehome{Homes: []shard.ShardHome{{Shard: s.ID, Home: home}}}, doubts, nil
}

// wanted returns how many replicas the shard should have.
func (c *Cluster) wanted(s *shard.Shard) int {
	if s.Home.Replicas > 0 {
		return s.Home.Replicas
	}
	return c.Map.Spec.Replicas
}

// destination adds the doubts about a move of a shard to the node.
func (c *Cluster) destination(field string, node shard.NodeID, doubts []*RefusedError) ([]*RefusedError, error) {
	m, err := c.memberNamed(field, node)
	switch {
	case err != nil:
		return nil, err
	case m.State == shard.Left:
		return nil, refused(field, "%s has left the cluster", node)
	case m.Draining || c.Map.IsDrained(node):
		return nil, refused(field, "%s is drained, and is given no shards: run cachectl undrain %s first", node, node)
	case m.State == shard.Dead:
		return append(doubts, doubt(field, "%s is dead: other nodes replace it until it returns", node)), nil
	case m.State == shard.Suspect:
		return append(doubts, doubt(field, "%s has not answered recently", node)), nil
	}
	return doubts, nil
}

// oneZone returns the zone of all the nodes if two or more nodes share a single
// zone and a node of another zone could have a shard; otherwise "".
func (c *Cluster) oneZone(nodes []shard.NodeID) string {
	if len(nodes) < 2 {
		return ""
	}
	zone, others := "", false
	for i, n := range nodes {
		at := slices.IndexFunc(c.Members, func(m shard.Member) bool { return m.Name == n })
		if at < 0 || c.Members[at].Zone == "" || (i > 0 && c.Members[at].Zone != zone) {
			return ""
		}
		zone = c.Members[at].Zone
	}
	for i := range c.Members {
		others = others || (c.takes(&c.Members[i]) && c.Members[i].Zone != zone)
	}
	if !others {
		return ""
	}
	return zone
}

func (r Drain) change(c *Cluster) (shard.Change, []*RefusedError, error) {
	if len(r.Nodes) == 0 {
		return nil, nil, &kv.InvalidError{Field: "nodes", Reason: "name the nodes to drain"}
	}
	var fresh []shard.NodeID
	for _, n := range r.Nodes {
		if _, err := c.memberNamed("nodes", n); err != nil && !c.Map.Holds(n) {
			return nil, nil, err
		}
		if !c.Map.IsDrained(n) {
			fresh = append(fresh, n)
		}
	}
	if len(fresh) == 0 {
		return nil, nil, nil
	}
	left := 0
	for i := range c.Members {
		if m := &c.Members[i]; c.takes(m) && !slices.Contains(r.Nodes, m.Name) {
			left++
		}
	}
	var doubts []*RefusedError
	switch {
	case left == 0:
		return nil, nil, refused("nodes", "no node would be left to hold shards")
	case left < c.Map.Spec.Replicas:
		doubts = append(doubts, doubt("nodes", "%s would be left for %d replicas of each shard (--replicas)", count(left, "node"), c.Map.Spec.Replicas))
	}
	if d := r.quorum(c); d != nil {
		doubts = append(doubts, d)
	}
	return shard.Drain{Nodes: fresh}, doubts, nil
}

// quorum returns a doubt about a drain that leaves the voters without a majority
// after the nodes are stopped. Votes of drained nodes go to others that may vote.
func (r Drain) quorum(c *Cluster) *RefusedError {
	going := func(n shard.NodeID) bool { return slices.Contains(r.Nodes, n) || c.Map.IsDrained(n) }
	if !slices.ContainsFunc(r.Nodes, func(n shard.NodeID) bool { return slices.Contains(c.Voters, n) }) {
		return nil
	}
	stay, heirs := 0, 0
	for i := range c.Members {
		m := &c.Members[i]
		switch {
		case m.State != shard.Alive || going(m.Name):
		case slices.Contains(c.Voters, m.Name):
			stay++
		case m.BootstrapExpect > 0:
			heirs++
		}
	}
	// A dead voter keeps its vote until another node takes it, and votes are
	// handed over only while there is a majority.
	if most := len(c.Voters)/2 + 1; stay+heirs < most {
		return doubt("nodes", "%d of %s would be left once %s stopped, and %d are needed to change the shard map (cachectl members shows the voters)",
			stay, count(len(c.Voters), "voter"), are(r.Nodes), most)
	}
	return nil
}

func (r Undrain) change(c *Cluster) (shard.Change, []*RefusedError, error) {
	if len(r.Nodes) == 0 {
		return nil, nil, &kv.InvalidError{Field: "nodes", Reason: "name the nodes to undrain"}
	}
	var drained []shard.NodeID
	for _, n := range r.Nodes {
		if c.Map.IsDrained(n) {
			drained = append(drained, n)
			continue
		}
		if _, err := c.memberNamed("nodes", n); err != nil {
			return nil, nil, err
		}
	}
	if len(drained) == 0 {
		return nil, nil, nil
	}
	return shard.Drain{Nodes: drained, Undo: true}, nil, nil
}

func (Rebalance) change(c *Cluster) (shard.Change, []*RefusedError, error) {
	loose := planner.Loosen(c.Map)
	if len(loose.Homes) == 0 {
		return nil, nil, nil
	}
	return loose, nil, nil
}

// count formats a number of things for messages.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// are formats the names with their verb.
func are(nodes []shard.NodeID) string {
	if len(nodes) == 1 {
		return names(nodes) + " is"
	}
	return names(nodes) + " are"
}
