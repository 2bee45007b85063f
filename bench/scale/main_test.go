package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// A small cluster goes through all changes, and copies what it must.
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
		// Hashing gives a node more or less than its share, and a planner never
		// takes a detour.
		if e.copies > e.fewest*3/2+5 {
			t.Errorf("%s: %d copies, %d are needed", ch.name, e.copies, e.fewest)
		}
		if s := cl.replicaSkew(); s > 2 {
			t.Errorf("%s: a node has %.1f times its share", ch.name, s)
		}
	}
}

// A few nodes find each other, and what their gossip costs is printed for both states.
func TestGossipOfAFewNodes(t *testing.T) {
	var out, complaints bytes.Buffer
	if code := run([]string{"--gossip", "5", "--gossip-for", "2s"}, &out, &complaints); code != 0 {
		t.Fatalf("%d: %s", code, complaints.String())
	}
	for _, state := range []string{"at rest", "the map changes once a second"} {
		row := regexp.MustCompile(`(?m)^\| ` + state + ` \| ([0-9]+) \| [0-9.]+ % \| [0-9.]+ \|$`).FindStringSubmatch(out.String())
		if row == nil || row[1] == "0" {
			t.Errorf("nothing was sent %s:\n%s", state, out.String())
		}
	}
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{{"--nodes", "1"}, {"--shards", "none"}, {"--replicas", "0"}, {"--gossip", "-1"}, {"--gossip-for", "10ms"}} {
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
