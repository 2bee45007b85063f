package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Verb is what a caller wants to do.
type Verb uint8

// The verbs. Admin is not about keys.
const (
	Read  Verb = iota // get and list
	Watch             // be told of changes
	Write             // what is passed on to etcd and changes keys or leases
	Admin             // the AdminService, and what acts on etcd as a whole

	verbs
)

// Verbs is the number of verbs.
const Verbs = verbs

func verbNames() []string { return []string{"read", "watch", "write", "admin"} }

// String returns the verb as policies name it.
func (v Verb) String() string { return verbNames()[v] }

// ParseVerb returns the verb of a name.
func ParseVerb(name string) (Verb, error) {
	i := slices.Index(verbNames(), name)
	if i < 0 {
		return 0, fmt.Errorf("%q is no verb: use %s", name, strings.Join(verbNames(), ", "))
	}
	return Verb(i), nil //nolint:gosec // one of four
}
