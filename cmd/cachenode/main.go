// Command cachenode is a Shardwatch cache node, and, as `cachenode dev`, a whole
// cluster with its own etcd in one process.
//
// Exit codes: 0 done (after SIGTERM: drained), 1 the work failed, 2 the command
// line or the configuration is wrong, 130 a second signal cut the shutdown
// short.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitForced = 130
)

// process is the part of the process that a command uses.
type process struct {
	environ        []string
	hostname       func() (string, error)
	stdout, stderr io.Writer
}

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	ctx, stop := cancelOnSignal(context.Background(), signals, os.Exit)
	p := process{environ: os.Environ(), hostname: os.Hostname, stdout: os.Stdout, stderr: os.Stderr}
	code := execute(ctx, p, os.Args[1:])
	stop()
	os.Exit(code)
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, p process, args []string) int {
	root := newRoot(p)
	root.SetArgs(args)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	_, _ = io.WriteString(p.stderr, report(err)) // there is no other output for an error
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}
