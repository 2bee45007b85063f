package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// A small cluster goes through all changes, and copies the required replicas.
func TestSmallCluster(t *testing.T) {
	var out, complaints bytes.Buffer
	if code := run([]string{"--nodes", "20", "--shards", "200", "--watches", "10000"}, &out, &complaints); code != 0 {
		t.Fatalf("%d: %s", code, complaints.String())
	}
	for _, want := range []string{"| a new leader |", "| a zone is lost |", "A rolling restart", "Zipf's law", "The map: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	c := defaults()
	c.nodes, c.shards, c.watches = 20, 200, 10_000
	cl, err := found(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range changes(c) {
		ch.do(cl)
		e, err := cl.settle()
		if err != nil {
			t.Fatalf("%s: %v", ch.name, err)
		}
		// Hashing gives a node more or less than its share, and a planner makes no superfluous
		// moves.
		if e.copies > e.fewest*3/2+5 {
			t.Errorf("%s: %d copies, %d are needed", ch.name, e.copies, e.fewest)
		}
		if s := cl.replicaSkew(); s > 2 {
			t.Errorf("%s: a node has %.1f times its share", ch.name, s)
		}
	}
}

// A few nodes and clients run in memory, and their cost is printed.
func TestLiveNodes(t *testing.T) {
	var out, told bytes.Buffer
	c := defaults()
	c.live, c.clients = 6, 30
	live(t, c, &out, &told)
	for _, row := range []string{`gossip, bytes a second`, `all else between nodes, bytes a second`} {
		if !regexp.MustCompile(`(?m)^\| ` + row + ` \| [1-9][0-9]* \|$`).MatchString(out.String()) {
			t.Errorf("no bytes of %q:\n%s", row, out.String())
		}
	}
	for _, row := range []string{"one shard is split", "a member is suspected, and then refutes it"} {
		if !regexp.MustCompile(`(?m)^\| ` + row + ` \| [0-9.]+m?s \| [0-9.]+m?s \| [0-9]+ \| [1-9][0-9]* \| [1-9][0-9]* \|`).MatchString(out.String()) {
			t.Errorf("no row of %q:\n%s", row, out.String())
		}
	}
	if !strings.Contains(told.String(), "connecting 30 clients") {
		t.Errorf("no progress: %s", told.String())
	}
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"--nodes", "1"}, {"--shards", "none"}, {"--replicas", "0"}, {"--live", "-1"}, {"--live", "300"}, {"--clients", "0"}} {
		var out, complaints bytes.Buffer
		if code := run(args, &out, &complaints); code != 2 || !strings.Contains(complaints.String(), args[0]) {
			t.Errorf("%v: %d, %s", args, code, complaints.String())
		}
	}
	var out bytes.Buffer
	if code := run([]string{"--help"}, &out, &out); code != 0 || !strings.Contains(out.String(), "--max-node-moves") {
		t.Errorf("%d: %s", code, out.String())
	}
}
