package main

import (
	"errors"
	"fmt"
	"strings"
)

// usageError reports that the command line or the configuration is wrong. The
// command has done nothing.
type usageError struct {
	// command is the command whose --help the message names.
	command string
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// report returns the message for an operator when the command ends with err: usage errors as a
// line or a list, other errors unchanged.
func report(err error) string {
	var usage *usageError
	if !errors.As(err, &usage) {
		return fmt.Sprintf("cachenode: %s\n", err)
	}
	var out strings.Builder
	lines := strings.Split(usage.Error(), "\n")
	if len(lines) == 1 {
		fmt.Fprintf(&out, "cachenode: %s\n", lines[0])
	} else {
		fmt.Fprintf(&out, "cachenode: %d mistakes:\n", len(lines))
		for _, l := range lines {
			fmt.Fprintf(&out, "  - %s\n", l)
		}
	}
	fmt.Fprintf(&out, "See '%s --help'.\n", usage.command)
	return out.String()
}
