package hostile

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A node has cores that neither this process nor its children use.
func TestNodesHaveCoresOfTheirOwn(t *testing.T) {
	before, err := coresOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("taskset"); err != nil || len(before) < 2 {
		t.Skipf("needs taskset and two cores: %v, %v", before, err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("taskset", "-a", "-p", "-c", join(before), strconv.Itoa(os.Getpid())).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	cfg := Defaults()
	cfg.Say = t.Logf
	if err := cfg.moveApart(t.Context()); err != nil {
		t.Fatal(err)
	}
	mine, err := coresOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	node := exec.Command(cfg.under[0], append(cfg.under[1:], "grep", "Cpus_allowed_list", "/proc/self/status")...)
	out, err := node.Output()
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := parseCores(strings.TrimSpace(strings.TrimPrefix(string(out), "Cpus_allowed_list:")))
	if err != nil {
		t.Fatal(err)
	}
	if all := slices.Concat(nodes, mine); len(nodes) == 0 || len(mine) == 0 || !slices.Equal(all, before) {
		t.Errorf("of the cores %v the node has %v and its clients have %v", before, nodes, mine)
	}
}

// The kernel's complete list of cores is parsed.
func TestParseCores(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-1": {0, 1}, "1,3-5,7": {1, 3, 4, 5, 7}} {
		if got, err := parseCores(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", list, got, err, want)
		}
	}
	for _, list := range []string{"", "a", "1-", "1,,2"} {
		if got, err := parseCores(list); err == nil {
			t.Errorf("%q: %v, want an error", list, got)
		}
	}
}
