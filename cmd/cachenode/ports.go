//go:build !nodev

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// portsFree returns an error that names every unavailable port, with the flag that
// changes it. Another process may take a port right afterwards: this check is for
// the message, not for safety.
func portsFree(ctx context.Context, ports []config.Port) error {
	var (
		errs []error
		lc   net.ListenConfig
	)
	for _, p := range ports {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number))
		l, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: cannot listen on %s (%s): %w; give another --%s", p.Flag, address, p.Use, reason(err), p.Flag))
			continue
		}
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// reason returns the error of the system, without Go's additions.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
