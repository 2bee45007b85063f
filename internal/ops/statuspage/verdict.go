package statuspage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

func serves(s State) bool { return s == Fine || s == Stale }

func worse(a, b State) State {
	if b.rank() > a.rank() {
		return b
	}
	return a
}

// shardState returns the state of one shard from its copies.
func shardState(list []Copy) State {
	all, serving, fresh, direct, owner := 0, 0, 0, 0, false
	for _, c := range list {
		if c.Relay > 0 {
			continue
		}
		all++
		if !serves(c.State) {
			continue
		}
		serving++
		direct += c.Direct
		owner = owner || c.Owned > 0
		if c.State == Fine {
			fresh++
		}
	}
	switch {
	case serving == 0:
		return Down
	case fresh == 0:
		return Stale
	case !owner && direct > 0:
		return TakenOver
	case serving < all || fresh < serving:
		return Thin
	}
	return Fine
}

// judge returns the state of the cluster, and the verdict.
func (v *View) judge() (Level, string) {
	if v.MapVersion == 0 {
		return Bad, "There is no shard map yet: the cluster is being founded, or this node reaches no other."
	}
	level, said := OK, []string(nil)
	say := func(l Level, format string, args ...any) {
		if l == Bad || level == OK {
			level = l
		}
		said = append(said, fmt.Sprintf(format, args...))
	}
	var silent, behind []string
	for _, n := range v.Nodes {
		switch {
		case !n.Answers && n.State != "left":
			silent = append(silent, n.Name)
		case n.Age > stale.Seconds():
			behind = append(behind, n.Name)
		}
	}
	if n := v.states[Down]; n > 0 {
		say(Bad, "%s served by no node.", are(n, "shard"))
	}
	switch {
	case !v.Etcd.Known:
		say(Bad, "etcd does not answer.")
	case v.Etcd.Age > stale.Seconds():
		say(Bad, "etcd has not answered for %s: the served data is that old.", forPeople(v.Etcd.Age))
	case v.states[Stale] > 0:
		say(Bad, "%s older than %v on all nodes.", are(v.states[Stale], "shard"), stale)
	case len(behind) > 0:
		say(Warn, "%s shards older than %v.", names(behind, "has", "have"), stale)
	}
	if len(silent) > 0 {
		say(Warn, "%s.", names(silent, "does not answer", "do not answer"))
	}
	if n := v.states[TakenOver]; n > 0 {
		say(Warn, "%s read from etcd by a replica in the owner's place.", are(n, "shard"))
	}
	for _, n := range v.Nodes {
		if n.Answers && n.Note != "" {
			say(n.Level, "%s: %s.", n.Name, strings.TrimSuffix(n.Note, "."))
		}
	}
	if v.Totals.Copies < v.Totals.Wanted {
		say(Warn, "%d of %d copies serve.", v.Totals.Copies, v.Totals.Wanted)
	}
	if level == OK {
		copies := "one copy of each"
		if v.Totals.Shards > 0 {
			if n := v.Totals.Wanted / v.Totals.Shards; n > 1 {
				copies = fmt.Sprintf("%d copies of each", n)
			}
		}
		return OK, fmt.Sprintf("All is well: %s on %s, %s.", count(v.Totals.Shards, "shard"), count(v.living(), "node"), copies)
	}
	return level, strings.Join(said, " ")
}

func (v *View) living() int {
	n := 0
	for i := range v.Nodes {
		if v.Nodes[i].State == "alive" {
			n++
		}
	}
	return n
}

// are returns the beginning of a sentence about n things.
func are(n int, what string) string {
	if n == 1 {
		return "1 " + what + " is"
	}
	return count(n, what) + " are"
}

// names joins names with a verb that agrees in number.
func names(list []string, one, many string) string {
	slices.Sort(list)
	switch n := len(list); {
	case n == 1:
		return list[0] + " " + one
	case n <= 3:
		return strings.Join(list[:n-1], ", ") + " and " + list[n-1] + " " + many
	default:
		return fmt.Sprintf("%s, %s and %d others %s", list[0], list[1], n-2, many)
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func forPeople(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
