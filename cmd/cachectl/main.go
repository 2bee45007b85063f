// Command cachectl watches, reads and writes keys through a Shardwatch cluster,
// and shows and changes the cluster. It uses the cluster only through the public
// client. Nodes that serve Kubernetes' API do not belong to a cluster: kube gets
// their reports from their HTTP ports.
//
// Exit codes: 0 success, 1 failure (or the key does not exist), 2 the command
// line is wrong, 3 a change of the shard map was accepted and continues, 4 the voters
// have no leader, so that the shard map cannot change, 5 a condition did not hold:
// put --if-revision, or wait within its timeout.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/changes"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cluster"
)

// The exit codes.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitGoesOn   = 3
	exitNoLeader = 4
	exitUnmet    = 5
)

func main() {
	// If the reader of the output has exited, the write fails. signal.Ignore would make
	// commands of watch inherit the ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	p := cli.Process{Getenv: os.Getenv, ConfigDir: os.UserConfigDir, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	code := execute(ctx, p, os.Args[1:])
	stop()
	os.Exit(code)
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, p cli.Process, args []string) int {
	root := newRoot(p)
	root.SetArgs(args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return exitDone
	}
	_, _ = io.WriteString(p.Stderr, cli.Report(err)) // there is no other output for an error
	return exitCode(err)
}

// exitCode returns the exit code of a command that ended with err.
func exitCode(err error) int {
	var usage *cli.UsageError
	var goesOn *changes.GoesOnError
	var leaderless *cluster.NoLeaderError
	var unmet *cli.UnmetError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &goesOn):
		return exitGoesOn
	case errors.As(err, &leaderless):
		return exitNoLeader
	case errors.As(err, &unmet):
		return exitUnmet
	}
	return exitFailed
}
