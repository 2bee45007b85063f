package freeport_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/freeport"
)

// A port stays with the process that has taken it while no process listens on it: no
// other one takes it, and it is taken once.
func TestAPortIsTakenOnce(t *testing.T) {
	const processes, each = 4, 150 // of blocks of 100
	if os.Getenv("FREEPORT_TEST_CHILD") != "" {
		mine, err := freeport.Take(each)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString(strings.Join(mine, "\n") + "\nend\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // all keep theirs until all have theirs
		return
	}
	var seen []string
	for range processes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAPortIsTakenOnce$")
		cmd.Env = append(os.Environ(), "FREEPORT_TEST_CHILD=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = in.Close(); _ = cmd.Wait() }()
		seen = append(seen, lines(t, out)...)
	}
	once := make(map[string]bool)
	for _, address := range seen {
		if once[address] {
			t.Errorf("%s was taken twice", address)
		}
		once[address] = true
	}
	if len(seen) != processes*each {
		t.Errorf("%d ports, want %d", len(seen), processes*each)
	}
}

// lines reads the child's ports.
func lines(t *testing.T, out io.Reader) (ports []string) {
	t.Helper()
	for s := bufio.NewScanner(out); s.Scan(); ports = append(ports, s.Text()) {
		if s.Text() == "end" {
			return ports
		}
	}
	t.Fatalf("the child ended after %d ports", len(ports))
	return nil
}
