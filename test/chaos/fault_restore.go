package chaos

import (
	"context"
	"errors"
)

// restores are etcds that come back with another history.
func restores() []Fault {
	later := func(name, about string) Fault {
		return Fault{
			Name: name, About: about, Needs: Needs{Members: 1}, NoWrites: true, Lists: true, Relists: true,
			Missing: "etcd cannot be restored by tests yet",
			Inject:  func(context.Context, *Scene) (heal, error) { return nil, errors.ErrUnsupported },
		}
	}
	return []Fault{
		later("restore-older", "etcd is restored from a snapshot, and is behind what it was"),
		later("restore-same-id", "the same, with its old cluster ID and member IDs"),
		later("restore-bumped", "etcd is restored with its revision bumped and all before it compacted"),
		later("restore-overtaken", "etcd is restored and has been written to until it is ahead of what it was"),
	}
}
