//go:build mutants

package mutant

import (
	"os"
	"sync"
)

var wanted = sync.OnceValue(func() string { return os.Getenv("SHARDWATCH_MUTANT") }) //nolint:gochecknoglobals // read once

// On reports whether the named bug is wanted.
func On(name string) bool { return name == wanted() }
