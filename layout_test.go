package shardwatch_test

import (
	"os"
	"strings"
	"testing"
)

// TestContributingDrawsTheLayout compares the picture of CONTRIBUTING.md with the
// floors: the packages that it names exist, none is drawn above one that imports it, and
// it says where an event enters, is kept and leaves, and what decides where a shard lives.
func TestContributingDrawsTheLayout(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, picture, _ := strings.Cut(string(text), "## The layout\n")
	_, picture, found := strings.Cut(picture, "```\n")
	picture, _, ended := strings.Cut(picture, "```")
	if !found || !ended {
		t.Fatal("CONTRIBUTING.md has no picture of the layout")
	}
	says := map[string]string{}
	above, last := len(floors()), ""
	for line := range strings.Lines(picture) {
		name := strings.Fields(line)[0]
		says[name] = line
		floor := floorOf(name)
		switch {
		case floor < 0:
			t.Errorf("the picture names %s, which has no floor", name)
		case floor > above:
			t.Errorf("the picture has %s below %s, which it may import", name, last)
		}
		above, last = floor, name
	}
	for name, what := range map[string]string{
		"internal/etcd": "ENTERS", "internal/cache": "KEPT", "internal/edge/native": "LEAVES", "internal/control/planner": "DECIDES",
	} {
		if !strings.Contains(says[name], what) {
			t.Errorf("the picture does not say that %s is where an event or a shard %s", name, what)
		}
	}
}
