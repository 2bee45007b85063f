package examples_test

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// most is the maximum number of lines of a program without imports and output.
const most = 15

// TestProgramsAreShort counts the lines of each main.go after its imports.
func TestProgramsAreShort(t *testing.T) {
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) != 3 {
		t.Fatalf("programs %v, %v: want three", programs, err)
	}
	for _, path := range programs {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, d := range file.Decls {
			if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.IMPORT {
				lines += files.Position(d.End()).Line - files.Position(d.Pos()).Line + 1
			}
		}
		if lines > most {
			t.Errorf("%s has %d lines, more than %d", path, lines, most)
		}
	}
}

// TestProgramsPrintTheirUsage checks the usage message of each program without arguments and with too few.
func TestProgramsPrintTheirUsage(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "./...").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, args := range map[string]string{"differences": "PREFIX", "settings": "PREFIX", "worker": "FILE PREFIX"} {
		for _, given := range [][]string{nil, strings.Fields(args)} {
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, name), given...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			exit, ok := errors.AsType[*exec.ExitError](cmd.Run())
			if !ok || exit.ExitCode() != 2 || stderr.String() != "usage: "+name+" "+args+" ENDPOINT...\n" {
				t.Errorf("%s %q: %v, stderr %q", name, given, exit, &stderr)
			}
		}
	}
}
