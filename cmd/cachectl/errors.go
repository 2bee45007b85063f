package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/shardwatch/shardwatch/client"
)

// usageError says that the command line is wrong: nothing was begun.
type usageError struct {
	// command is what to ask --help of.
	command string
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// nobodyError says that no node answered at the endpoints.
type nobodyError struct {
	endpoints []string
	err       error
}

func (e *nobodyError) Error() string {
	return fmt.Sprintf("nobody answers at %s: %v\n"+
		"Start a cluster with 'cachenode dev', or name one with --endpoints (or CACHECTL_ENDPOINTS).",
		strings.Join(e.endpoints, ", "), e.err)
}

func (e *nobodyError) Unwrap() error { return e.err }

// report is what a person reads when the command ends with err.
func report(err error) string {
	text := fmt.Sprintf("cachectl: %s\n", err)
	var usage *usageError
	if errors.As(err, &usage) {
		return text + fmt.Sprintf("See '%s --help'.\n", usage.command)
	}
	if errors.Is(err, client.ErrUnauthenticated) {
		text += "Name one with --user and --password-file.\n"
	}
	var compacted *client.CompactedError
	if errors.As(err, &compacted) && compacted.Floor > 0 {
		text += fmt.Sprintf("With cachectl: watch --state, or --from %d.\n", compacted.Floor)
	}
	return text
}
