package shardwatch_test

import (
	"os"
	"strings"
	"testing"
)

// TestContributingShowsTheLayers compares the layout in CONTRIBUTING.md with the layers: its packages exist,
// none is drawn above a package that imports it, and it marks the packages where an event enters, is kept and
// leaves, and where the placement of shards is decided.
func TestContributingShowsTheLayers(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, picture, _ := strings.Cut(string(text), "## The layout\n")
	_, picture, found := strings.Cut(picture, "```\n")
	picture, _, ended := strings.Cut(picture, "```")
	if !found || !ended {
		t.Fatal("CONTRIBUTING.md has no drawing of the layout")
	}
	says := map[string]string{}
	above, last := len(layers()), ""
	for line := range strings.Lines(picture) {
		name := strings.Fields(line)[0]
		says[name] = line
		layer := layerOf(name)
		switch {
		case layer < 0:
			t.Errorf("the layout names %s, which is in no layer", name)
		case layer > above:
			t.Errorf("the layout has %s below %s, which it may import", name, last)
		}
		above, last = layer, name
	}
	for name, what := range map[string]string{
		"internal/etcd": "ENTERS", "internal/cache": "KEPT", "internal/edge/native": "LEAVES", "internal/control/planner": "DECIDES",
	} {
		if !strings.Contains(says[name], what) {
			t.Errorf("the layout does not mark %s with %s", name, what)
		}
	}
}
