package client_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

const (
	childEnv     = "SHARDWATCH_CLIENT_TEST_ENDPOINTS"
	childWatches = 20
	childSilence = 2 * time.Second
	childStops   = 5
)

// child is a program with some watches in a separate process. It reports when they have
// started and, after an event for all of them, how often they have moved.
func child(endpoints string) int {
	c, err := client.New(client.Config{Endpoints: strings.Split(endpoints, ","), Silence: childSilence})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = c.Close() }()
	ctx := context.Background()
	var watches []*client.Watcher
	for range childWatches {
		watches = append(watches, c.Watch(ctx, demo))
	}
	for _, w := range watches {
		<-w.Started()
	}
	fmt.Println("started")
	for _, w := range watches {
		if _, err := w.Next(ctx); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("moved", c.Stats().Resumes, "times")
	return 0
}

// A program that was stopped for longer than the silence limit, by a signal or for lack of
// CPU, does not treat its nodes as dead: its watches do not move.
func TestAStoppedProgramDoesNotBlameItsNodes(t *testing.T) {
	t.Parallel() // it waits while the program is stopped
	cluster := start(t, clienttest.Config{})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(cluster.Endpoints(), ","), "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	says := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("the program prints %q, want %q", lines.Text(), want)
		}
	}
	says("started")
	for range childStops {
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(childSilence * 3 / 2) // the fault itself
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(childSilence / 4) // lets the program run
	}
	cluster.Put("/demo/a", "1")
	says("moved 0 times")
}
