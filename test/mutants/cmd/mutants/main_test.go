package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestHelp(t *testing.T) {
	for _, flag := range []string{"--help", "-h"} {
		var out, complaints bytes.Buffer
		if code := run([]string{flag}, &out, &complaints); code != 0 || complaints.Len() > 0 {
			t.Errorf("%s: exit code %d, %s", flag, code, complaints.String())
		}
		for _, want := range []string{"Usage", "Examples:", "--only names", "--jobs number", "at least 95 % of the mutants", "Exit codes:"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in:\n%s", flag, want, out.String())
			}
		}
	}
}

func TestWrongFlags(t *testing.T) {
	for arg, want := range map[string]string{
		"--none":         "unknown flag: --none; see --help",
		"epoch-reset":    `unexpected argument "epoch-reset"; see --help`,
		"--only=nothing": "called nothing",
	} {
		var out, complaints bytes.Buffer
		if code := run([]string{arg}, &out, &complaints); code != 2 || !strings.Contains(complaints.String(), want) || out.Len() > 0 {
			t.Errorf("%s: exit code %d, %s, want 2, %q", arg, code, complaints.String(), want)
		}
	}
}

func TestOnly(t *testing.T) {
	all, err := choose(nil)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d mutants, %v", len(all), err)
	}
	some, err := choose([]string{"internal/cache", "epoch-reset"})
	if err != nil || len(some) < 2 || len(some) == len(all) {
		t.Fatalf("%d of %d mutants, %v", len(some), len(all), err)
	}
	for _, m := range some {
		if m.Name != "epoch-reset" && !strings.HasPrefix(m.File, "internal/cache/") {
			t.Errorf("%s of %s was not asked for", m.Name, m.File)
		}
	}
}
