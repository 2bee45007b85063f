package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"report", "--help"}} {
		var out, complaints bytes.Buffer
		if code := run(args, &out, &complaints); code != 0 || complaints.Len() > 0 {
			t.Errorf("%v: exit code %d, %s", args, code, complaints.String())
		}
		for _, want := range []string{"Usage:", "report DIR...", "Examples:", "--cycles number", "Exit codes:"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v: no %q in:\n%s", args, want, out.String())
			}
		}
	}
}

func TestWrongFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"unknown flag: --none; see --help":        {"--none"},
		`unexpected argument "run"; see --help`:   {"run"},
		"report: name directories with reports; ": {"report"},
		"no such file or directory":               {"report", "testdata/none"},
	} {
		var out, complaints bytes.Buffer
		if code := run(args, &out, &complaints); code == 0 || !strings.Contains(complaints.String(), want) || out.Len() > 0 {
			t.Errorf("%v: exit code %d, %s, want %q", args, code, complaints.String(), want)
		}
	}
}
