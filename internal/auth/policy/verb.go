package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Verb is a kind of access.
type Verb uint8

// The verbs. Those of operators do not apply to keys.
const (
	Read          Verb = iota // get and list
	Watch                     // watch
	Write                     // forwarded requests that change keys or leases
	OperatorRead              // status, watchers and traces; metrics, the status page and profiles
	OperatorWrite             // shard map changes, lineages, voters; calls that act on etcd as a whole

	verbs
)

// Verbs is the number of verbs.
const Verbs = verbs

func verbNames() []string {
	return []string{"read", "watch", "write", "operator:read", "operator:write"}
}

// String returns the verb as policies name it.
func (v Verb) String() string { return verbNames()[v] }

// OfKeys reports whether the verb applies to keys.
func (v Verb) OfKeys() bool { return v < OperatorRead }

// ParseVerb returns the verb with a name.
func ParseVerb(name string) (Verb, error) {
	i := slices.Index(verbNames(), name)
	if i < 0 {
		return 0, fmt.Errorf("%q is not a verb: use %s", name, strings.Join(verbNames(), ", "))
	}
	return Verb(i), nil //nolint:gosec // one of five
}
